"""Shapes of neighbours and of uneven data: butterflies, grids with edges, ranks that joined."""

from __future__ import annotations

from random import Random

from hanglab.harness.trials.programs import Issue, Program
from hanglab.harness.trials.shapes.building import Thread, Waits, program, world


def butterfly(random: Random) -> Program:
    """An all_reduce by hand: half as much with a partner half as far each time, and back again.

    Ranks beyond a power of two hand theirs to one below it first, and get the result last.
    """
    size, steps, batched = random.randint(3, 7), random.randint(1, 4), random.random() < 0.5
    checks = random.randint(1, 2)
    waits: Waits = "host" if random.random() < 0.5 else "stream"
    power = 1 << (size.bit_length() - 1)
    distances = [power >> bit for bit in range(1, power.bit_length())]
    threads = [Thread(random) for _ in range(size)]
    for rank, thread in enumerate(threads):
        partner = rank - power if rank >= power else rank + power
        folded = partner if partner < size else None

        def swap(peer: int, numel: int, line: int, thread: Thread = thread) -> None:
            kinds = ("send", "recv") if threads.index(thread) < peer else ("recv", "send")
            if batched:
                issues = [Issue("1", kind, numel=numel, peer=peer) for kind in kinds]
                thread.batch(issues, wait=waits, line=line)
                return
            for kind in kinds:
                thread.issue("1", kind, numel=numel, peer=peer, wait=waits, line=line)

        for step in range(1, steps + 1):
            thread.compute()
            if folded is not None:
                kind = "send" if rank >= power else "recv"
                thread.issue("1", kind, numel=256, peer=folded, wait=waits, line=20)
            if rank < power:
                halves = [(rank ^ far, 128 >> place) for place, far in enumerate(distances)]
                for peer, numel in halves:
                    swap(peer, numel, 22)
                for peer, numel in reversed(halves):
                    swap(peer, numel, 24)
            if folded is not None:
                kind = "recv" if rank >= power else "send"
                thread.issue("1", kind, numel=256, peer=folded, wait=waits, line=26)
            if step % checks == 0:
                thread.issue("0", "all_reduce", numel=1, wait="host", line=30)
    groups = {"0": world(size), "1": world(size, "butterfly")}
    return program("butterfly", groups, [[thread] for thread in threads])


def grid(random: Random) -> Program:
    """Fields on a grid with edges: borders to up to four neighbours, a residual now and then.

    In one batch, or along the rows first and along the columns then, which brings corners too.
    """
    rows, columns, steps = random.randint(2, 3), random.randint(2, 3), random.randint(2, 6)
    phases, checks = random.random() < 0.5, random.randint(1, 3)
    waits: Waits = "host" if random.random() < 0.5 else "stream"
    size = rows * columns
    threads = [Thread(random) for _ in range(size)]
    for rank, thread in enumerate(threads):
        row, column = divmod(rank, columns)
        beside = [row * columns + c for c in (column - 1, column + 1) if 0 <= c < columns]
        above = [r * columns + column for r in (row - 1, row + 1) if 0 <= r < rows]
        along = [[(peer, 16) for peer in beside], [(peer, 32) for peer in above]]
        for step in range(1, steps + 1):
            thread.compute()
            for place, sides in enumerate(along if phases else [along[0] + along[1]]):
                issues = [
                    Issue("1", kind, numel=numel, peer=peer)
                    for peer, numel in sides for kind in ("recv", "send")
                ]  # fmt: skip
                thread.batch(issues, wait=waits, line=20 + place)
            if step % checks == 0:
                thread.issue("0", "all_reduce", numel=1, wait="host", line=30)
        thread.issue("0", "all_gather", numel=8, wait="host", line=32)
    groups = {"0": world(size), "1": world(size, "grid")}
    return program("grid", groups, [[thread] for thread in threads])


def joined(random: Random) -> Program:
    """DDP with uneven inputs: who has none left joins, and shadows what the others reduce.

    Each step says first who still has data; once nobody has, the last to join broadcasts its model.
    """
    size, buckets, epochs = random.randint(2, 6), random.randint(1, 3), random.randint(1, 2)
    tells = random.choice(("0", "1"))
    threads = [Thread(random) for _ in range(size)]
    for _ in range(epochs):
        batches = [random.randint(1, 5) for _ in threads]
        for rank, thread in enumerate(threads):
            for step in range(max(batches) + 1):
                active = step < batches[rank]
                line = 10 if active else 30
                told = thread.issue(tells, "all_reduce", numel=1, wait="never", line=line)
                if not active:
                    thread.wait(told, host=True)
                if step == max(batches):
                    break
                works = []
                for bucket in range(buckets):
                    if active:
                        thread.compute()
                    options = {"numel": 64 << bucket, "line": line + 2}
                    works.append(thread.issue("0", "all_reduce", wait="never", **options))
                for work in (told, *works):
                    thread.wait(work)
            root = batches.index(max(batches))
            thread.issue("0", "all_reduce", numel=1, wait="host", line=40)
            thread.issue("0", "broadcast", numel=256, root=root, line=42)
            thread.issue("0", "barrier", wait="host", line=44)
    groups = {"0": world(size), "1": world(size, "join")}
    return program("joined", groups, [[thread] for thread in threads])
