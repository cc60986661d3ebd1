"""Shapes of groups within groups: reductions by nodes, sequences, tables, microbatches, depths."""

from __future__ import annotations

from random import Random

from hanglab.harness.trials.programs import Group, Issue, Program
from hanglab.harness.trials.shapes.building import Thread, Waits, program, splits, takes, world


def _cut(size: int, width: int, first: int, names: tuple[str, str]) -> dict[str, Group]:
    """Groups of neighbours, so many each, and then those of the ones in like places."""
    rows = size // width
    found = {
        str(first + row): Group(tuple(range(row * width, (row + 1) * width)), names[0])
        for row in range(rows)
    }
    return found | {
        str(first + rows + place): Group(tuple(range(place, size, width)), names[1])
        for place in range(width)
    }


def hierarchical(random: Random) -> Program:
    """Gradients reduced in the node, then across nodes, then spread in the node.

    By shards, each across on a group of its own, or by the first of each node alone.  Buckets one
    after the other, or each in flight while the next is computed.
    """
    nodes, local = random.choice(((2, 2), (2, 3), (3, 2), (2, 4), (4, 2)))
    size, buckets, steps = nodes * local, random.randint(1, 4), random.randint(1, 6)
    leaders, flies = random.random() < 0.4, random.random() < 0.5
    equal, one_line = random.random() < 0.5, random.random() < 0.5
    checks = random.randint(0, 2)
    groups = {"0": world(size), **_cut(size, local, 1, ("node", "across"))}
    threads = [Thread(random) for _ in range(size)]
    for rank, thread in enumerate(threads):
        node, place = divmod(rank, local)
        inside, across, first = str(1 + node), str(1 + nodes + place), node * local
        rooted = {"root": first} if leaders else {}
        ways = [
            (inside, "reduce" if leaders else "reduce_scatter", rooted, 10),
            (across, "all_reduce", {}, 12),
            (inside, "broadcast" if leaders else "all_gather", rooted, 14),
        ]
        if leaders and place:
            del ways[1]
        for step in range(1, steps + 1):
            numels = [64 if equal else 48 << bucket for bucket in range(buckets)]
            works: list[str] = []
            for numel in numels:
                thread.compute()
                for group, kind, root, line in ways[: 1 if flies else None]:
                    work = thread.issue(
                        group, kind, numel=numel, line=10 if one_line else line,
                        wait="never" if flies else "stream", **root,
                    )  # fmt: skip
                    works.append(work)
            for group, kind, root, line in ways[1:] if flies else ():
                for work in works:
                    thread.wait(work)
                works = [
                    thread.issue(
                        group, kind, numel=numel, line=10 if one_line else line, wait="never",
                        **root,
                    ) for numel in numels
                ]  # fmt: skip
            for work in works if flies else ():
                thread.wait(work)
            if checks and step % checks == 0:
                thread.issue("0", "all_reduce", numel=1, wait="host", line=20)
    return program("hierarchical", groups, [[thread] for thread in threads])


def ulysses_ring(random: Random) -> Program:
    """Heads exchanged within pairs or more, and keys passed round a ring of those in like places.

    Four exchanges a layer from one helper's line; the ring turns while its block is attended.
    """
    width, length = random.choice(((2, 2), (2, 3), (2, 4), (3, 2), (4, 2)))
    size, layers, steps = width * length, random.randint(1, 3), random.randint(1, 3)
    one_line, late = random.random() < 0.7, random.random() < 0.5
    groups = {"0": world(size), **_cut(size, width, 1, ("ulysses", "ring"))}
    threads = [Thread(random) for _ in range(size)]
    for rank, thread in enumerate(threads):
        row, place = divmod(rank, width)
        heads, ring = str(1 + row), str(1 + length + place)
        ahead, behind = (rank + width) % size, (rank - width) % size

        def exchange(times: int, line: int, thread: Thread = thread, heads: str = heads) -> None:
            for time in range(times):
                even = (16,) * width
                spot = 10 if one_line else line + time
                thread.issue(heads, "all_to_all", gives=even, takes=even, line=spot)

        for _ in range(steps):
            for back in [False] * layers + [True] * layers:
                exchange(1 if back else 3, 12)
                for _ in range(length if back else length - 1):
                    pair = [Issue(ring, "send", peer=ahead), Issue(ring, "recv", peer=behind)]
                    pair = pair * 2 if back and late else pair  # Gradients travel with them.
                    work = thread.batch(pair, wait="never", line=20)
                    thread.compute()
                    thread.wait(work, host=False)
                exchange(3 if back else 1, 16)
            thread.issue("0", "all_reduce", numel=512, line=24)
            thread.issue("0", "all_reduce", numel=1, wait="host", line=26)
    return program("ulysses_ring", groups, [[thread] for thread in threads])


def sharded_embeddings(random: Random) -> Program:
    """Tables over ranks: numbers of ids are exchanged, then ids, then rows; and gradients back.

    The next batch's ids may travel while this one is trained.
    """
    size, tables, steps = random.randint(2, 6), random.randint(1, 3), random.randint(1, 6)
    ahead, separate = random.random() < 0.5, random.random() < 0.5
    name, members = "1" if separate else "0", tuple(range(size))
    groups = {"0": world(size)} | ({"1": world(size, "tables")} if separate else {})
    threads = [Thread(random) for _ in range(size)]
    batches = [[splits(random, members) for _ in range(tables)] for _ in range(steps)]

    def ids(step: int) -> None:
        for thread, rank in zip(threads, members, strict=True):
            even = (tables,) * size
            thread.issue(name, "all_to_all", gives=even, takes=even, dtype="Long", wait="host")
            for out in batches[step]:
                thread.issue(
                    name, "all_to_all", gives=out[rank], takes=takes(out, members, rank),
                    dtype="Long", line=12,
                )  # fmt: skip

    def rows(step: int, line: int, back: bool) -> None:
        for thread, rank in zip(threads, members, strict=True):
            for out in reversed(batches[step]) if back else batches[step]:
                ends = [tuple(4 * n for n in out[rank])]
                ends.append(tuple(4 * n for n in takes(out, members, rank)))
                gives, received = ends if back else reversed(ends)
                thread.issue(name, "all_to_all", gives=gives, takes=received, line=line)

    for step in range(steps):
        if not ahead or step == 0:
            ids(step)
        rows(step, 14, False)
        if ahead and step + 1 < steps:
            ids(step + 1)
        for thread in threads:
            thread.compute()
            thread.issue("0", "all_reduce", numel=256, wait="never", line=20)
        rows(step, 16, True)
    return program("sharded_embeddings", groups, [[thread] for thread in threads])


def accumulation(random: Random) -> Program:
    """Steps of microbatches, as many as each replica's data fills; only the last of them reduces.

    Each pass of a replica is tensor-parallel, so that their calls there are not equally many.
    """
    tensor, replicas = random.choice(((1, 3), (1, 4), (2, 2), (2, 3), (2, 4), (3, 2), (4, 2)))
    size, layers, steps = tensor * replicas, random.randint(1, 2), random.randint(1, 6)
    buckets, counts = random.randint(1, 3), random.random() < 0.6
    waits: Waits = "host" if random.random() < 0.3 else "stream"
    groups = {"0": world(size), **_cut(size, tensor, 1, ("tensor", "data"))}
    micro = [[random.randint(1, 4) for _ in range(replicas)] for _ in range(steps)]
    threads = [Thread(random) for _ in range(size)]
    for rank, thread in enumerate(threads):
        replica, place = divmod(rank, tensor)
        pair, data = str(1 + replica), str(1 + replicas + place)
        for step in range(steps):
            if counts:
                thread.issue("0", "all_reduce", numel=1, dtype="Long", wait="host", line=8)
            works: list[str] = []
            for number in range(micro[step][replica]):
                for layer in range(2 * layers):
                    thread.compute(0.2, 1)
                    if tensor > 1:
                        thread.issue(pair, "all_reduce", line=10 if layer < layers else 11)
                    last = number + 1 == micro[step][replica] and layer >= layers
                    for bucket in range(buckets if last else 0):
                        options = {"numel": 64 << bucket, "line": 20}
                        works.append(thread.issue(data, "all_reduce", wait="never", **options))
            for work in works:
                thread.wait(work, host=waits == "host")
            if not counts or step % 2:
                thread.issue("0", "all_reduce", numel=1, wait=waits, line=24)
    return program("accumulation", groups, [[thread] for thread in threads])
