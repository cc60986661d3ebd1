"""Shapes of messages: rings by hand, gossip, teachers, pipelines from both ends, dealt batches."""

from __future__ import annotations

from random import Random

from hanglab.harness.trials.programs import Group, Issue, Program
from hanglab.harness.trials.shapes.building import Thread, Waits, program, world

#: A pass of a microbatch from one end: its kind, its number, and which end.
Unit = tuple[str, int, int]


def ring_reduce(random: Random) -> Program:
    """An all_reduce by hand: chunks go round a ring to be summed, and round again to be spread.

    A send in the background of a receive, both in one batch, or by the parity of the rank.
    """
    size, tensors, steps = random.randint(3, 6), random.randint(1, 2), random.randint(1, 4)
    way, checks = random.choice(("behind", "batch", "parity")), random.randint(1, 3)
    waits: Waits = "host" if random.random() < 0.5 else "stream"
    chunks = [random.choice((32, 32 + place)) for place in range(size)]
    threads = [Thread(random) for _ in range(size)]
    for rank, thread in enumerate(threads):

        def turn(out: int, into: int, line: int, thread: Thread = thread, rank: int = rank) -> None:
            ends = [
                ("send", (rank + 1) % size, chunks[out]),
                ("recv", (rank - 1) % size, chunks[into]),
            ]
            if way == "batch":
                issues = [Issue("1", kind, peer=peer, numel=numel) for kind, peer, numel in ends]
                thread.batch(issues, wait=waits, line=line)
                return
            if way == "parity" and rank % 2:
                ends.reverse()
            works: list[str] = []
            for place, (kind, peer, numel) in enumerate(ends):
                behind = way == "behind" and kind == "send"
                options = {"peer": peer, "numel": numel, "line": line + place}
                wait: Waits = "never" if behind else waits
                works.append(thread.issue("1", kind, wait=wait, **options))
            if way == "behind":
                thread.wait(works[0], host=waits == "host")

        for step in range(1, steps + 1):
            thread.compute()
            for _ in range(tensors):
                for far in range(size - 1):
                    turn((rank - far) % size, (rank - far - 1) % size, 20)
                    thread.compute(0.1, 0.3)
                for far in range(size - 1):
                    turn((rank + 1 - far) % size, (rank - far) % size, 24)
            if step % checks == 0:
                thread.issue("0", "all_reduce", numel=1, wait="host", line=30)
    groups = {"0": world(size), "1": world(size, "ring")}
    return program("ring_reduce", groups, [[thread] for thread in threads])


def gossip(random: Random) -> Program:
    """Each step another partner, drawn by a seed that all share; who is left over goes on alone.

    All take a mean now and then, and all the same partners again where there are but two.
    """
    size, steps, mean = random.randint(2, 7), random.randint(2, 10), random.randint(2, 5)
    tensors, batched = random.randint(1, 3), random.random() < 0.5
    waits: Waits = "host" if random.random() < 0.5 else "stream"
    threads = [Thread(random) for _ in range(size)]
    for step in range(1, steps + 1):
        for thread in threads:
            thread.compute()
        drawn = random.sample(range(size), size)
        for one, other in zip(drawn[::2], drawn[1::2], strict=False):
            for rank, peer in ((one, other), (other, one)):
                kinds = ("send", "recv") if rank < peer else ("recv", "send")
                ends = [
                    Issue("1", kind, peer=peer, numel=32 << tensor)
                    for tensor in range(tensors) for kind in kinds
                ]  # fmt: skip
                if batched:
                    threads[rank].batch(ends, wait=waits, line=20)
                    continue
                for end in ends:
                    line = 22 if end.kind == "send" else 24
                    options = {"peer": peer, "numel": end.numel, "line": line}
                    threads[rank].issue("1", end.kind, wait=waits, **options)
        if step % mean == 0 or step == steps:
            for thread in threads:
                thread.issue("0", "all_reduce", numel=128, wait="host", line=30)
    groups = {"0": world(size), "1": world(size, "gossip")}
    return program("gossip", groups, [[thread] for thread in threads])


def teachers(random: Random) -> Program:
    """Teachers send each of their students what they make of its batch, as far ahead as they like.

    Students reduce among them; their first gives the teachers its weights now and then.
    """
    count, share = random.choice(((1, 2), (1, 3), (1, 4), (2, 1), (2, 2), (2, 3), (3, 1)))
    steps, every, buckets = random.randint(2, 8), random.randint(2, 4), random.randint(1, 3)
    asks, updates = random.random() < 0.5, random.random() < 0.6
    size, students = count * (share + 1), tuple(range(count, count * (share + 1)))
    groups = {
        "0": world(size),
        "1": Group(tuple(range(count)), "teacher"),
        "2": Group(students, "student"),
        "3": Group((*range(count), count), "weights"),
    }
    wait: Waits = random.choice(("never", "host", "stream"))
    threads = [Thread(random) for _ in range(size)]
    for rank, thread in enumerate(threads):
        teaches = rank < count
        thread.issue("0", "barrier", wait="host", line=8)
        for step in range(1, steps + 1):
            if teaches:
                mine = [student for student in students if student % count == rank]
                for student in mine:
                    if asks:
                        thread.issue("0", "recv", peer=student, numel=8, wait="host", line=10)
                    thread.compute()
                    if count > 1 and not asks:
                        thread.issue("1", "all_reduce", line=12)
                    thread.issue("0", "send", peer=student, numel=96, wait=wait, line=14)
            else:
                if asks:
                    thread.issue("0", "send", peer=rank % count, numel=8, line=20)
                thread.compute()
                thread.issue("0", "recv", peer=rank % count, numel=96, line=22)
                for bucket in range(buckets):
                    thread.issue("2", "all_reduce", numel=64 << bucket, line=24)
            if updates and step % every == 0 and rank <= count:
                line = 16 if teaches else 26
                thread.issue("3", "broadcast", numel=256, root=count, wait="host", line=line)
        thread.issue("0", "barrier", wait="host", line=30)
    return program("teachers", groups, [[thread] for thread in threads])


def both_ends(random: Random) -> Program:
    """DualPipe: microbatches enter at both ends, weights' gradients fill what would be bubbles.

    Each tick commits its messages in one batch, waited for at once or before the next pass.
    """
    size, micro, steps = random.randint(2, 6), random.randint(1, 4), random.randint(1, 2)
    late, one_line = random.random() < 0.5, random.random() < 0.5
    numels = random.choice(((64, 64), (64, 96)))
    groups = {"0": world(size), "1": world(size, "pipeline")}
    for rank in range(size // 2):
        groups[str(2 + rank)] = Group((rank, size - 1 - rank), "twins")
    threads = [Thread(random) for _ in range(size)]
    for _ in range(steps):
        for row in _ticks(size, micro):
            batches: list[list[Issue]] = [[] for _ in range(size)]
            for rank, unit in enumerate(row):
                if unit is None:
                    continue
                kind, _, end = unit
                threads[rank].compute()
                to = rank + (1 if (kind == "f") == (end == 0) else -1)
                if kind != "w" and 0 <= to < size:
                    batches[rank].append(Issue("1", "send", peer=to, numel=numels[end]))
                    batches[to].append(Issue("1", "recv", peer=rank, numel=numels[end]))
            for rank, issues in enumerate(batches):
                if not issues:
                    continue
                line = 20 if one_line else 20 + 2 * len(issues) + (issues[0].kind == "send")
                threads[rank].batch(issues, wait="stream" if late else "host", line=line)
        for rank, thread in enumerate(threads):
            twins = min(rank, size - 1 - rank)
            if rank != size - 1 - rank:
                thread.issue(str(2 + twins), "all_reduce", numel=256, line=40)
            thread.issue("0", "all_reduce", numel=1, wait="host", line=42)
    return program("both_ends", groups, [[thread] for thread in threads])


def _ticks(size: int, micro: int) -> list[list[Unit | None]]:
    """The units that each rank computes in each tick, from what the ticks before have made."""
    made: dict[tuple[int, Unit], int] = {}  # by rank
    ticks: list[list[Unit | None]] = []
    units = [(kind, number, end) for kind in "bfw" for number in range(micro) for end in (0, 1)]

    def is_ready(rank: int, unit: Unit) -> bool:
        kind, number, end = unit
        before = rank - (1 if (kind == "f") == (end == 0) else -1)
        if kind == "w":
            return (rank, ("b", number, end)) in made
        if kind == "b" and (rank, ("f", number, end)) not in made:
            return False
        return not 0 <= before < size or (before, (kind, number, end)) in made

    while len(made) < size * len(units):
        row = [
            next((u for u in units if (rank, u) not in made and is_ready(rank, u)), None)
            for rank in range(size)
        ]  # fmt: skip
        made |= {(rank, unit): len(ticks) for rank, unit in enumerate(row) if unit is not None}
        ticks.append(row)
    return ticks
