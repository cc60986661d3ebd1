"""Shapes of many groups: tensor and data, experts, halos, subsets, orders that differ by rank."""

from __future__ import annotations

from random import Random

from hanglab.harness.trials.programs import Group, Issue, Program
from hanglab.harness.trials.shapes.building import Thread, Waits, program, splits, takes, world


def tensor_and_data(random: Random) -> Program:
    """Tensor-parallel pairs and data-parallel groups across them, one order everywhere."""
    replicas, steps = random.randint(2, 4), random.randint(2, 5)
    size = 2 * replicas
    groups = {"0": world(size)}
    groups |= {f"{1 + i}": Group((2 * i, 2 * i + 1), "tensor") for i in range(replicas)}
    groups |= {f"{1 + replicas + i}": Group(tuple(range(i, size, 2)), "data") for i in range(2)}
    host: Waits = "host" if random.random() < 0.5 else "stream"
    threads = [Thread(random) for _ in range(size)]
    for rank, thread in enumerate(threads):
        for _ in range(steps):
            thread.compute()
            thread.issue(f"{1 + rank // 2}", "all_reduce", wait=host, line=10)
            thread.compute()
            thread.issue(f"{1 + replicas + rank % 2}", "all_reduce", numel=256, wait=host, line=12)
    return program("tensor_and_data", groups, [[thread] for thread in threads])


def experts(random: Random) -> Program:
    """Tokens to experts and back with splits of every step's own, and a data-parallel reduction."""
    replicas, width, steps = random.randint(1, 2), random.randint(2, 4), random.randint(2, 4)
    size = replicas * width
    groups = {"0": world(size)}
    for replica in range(replicas):
        members = tuple(range(replica * width, (replica + 1) * width))
        groups[f"{1 + replica}"] = Group(members, "expert")
    threads = [Thread(random) for _ in range(size)]
    for _ in range(steps):
        for replica in range(replicas):
            name = f"{1 + replica}"
            members = groups[name].members
            out = splits(random, members)
            back = {member: takes(out, members, member) for member in members}
            for member in members:
                thread = threads[member]
                thread.compute()
                for line, gives in ((20, out), (24, back)):
                    received = takes(gives, members, member)
                    thread.issue(name, "all_to_all", gives=gives[member], takes=received, line=line)
                    thread.compute()
        for thread in threads:
            thread.issue("0", "all_reduce", numel=128, line=30)
    return program("experts", groups, [[thread] for thread in threads])


def halo(random: Random) -> Program:
    """Neighbours on a line exchange their borders, in one batch or by the parity of the rank."""
    size, steps, batched = random.randint(3, 6), random.randint(2, 5), random.random() < 0.5
    closed = batched and random.random() < 0.5
    host: Waits = "host" if random.random() < 0.5 else "stream"
    threads = [Thread(random) for _ in range(size)]
    for rank, thread in enumerate(threads):
        left, right = rank - 1, rank + 1
        if closed:
            left, right = left % size, right % size
        for _ in range(steps):
            thread.compute()
            sides = [side for side in (left, right) if 0 <= side < size]
            if batched:
                issues = [Issue("1", k, numel=16, peer=s) for k in ("send", "recv") for s in sides]
                thread.batch(issues, wait=host, line=20)
            else:
                # Even ranks turn to their right first, so each pair meets in one phase.
                for side in sorted(sides, key=lambda s, rank=rank: min(s, rank) % 2):  # type: ignore[misc]
                    for kind in ("send", "recv") if rank % 2 else ("recv", "send"):
                        thread.issue("1", kind, numel=16, peer=side, wait=host, line=22)
        thread.issue("0", "all_reduce", numel=1, wait="host", line=30)
    groups = {"0": world(size), "1": world(size, "halo")}
    return program("halo", groups, [[thread] for thread in threads])


def context_ring(random: Random) -> Program:
    """Keys and values passed round a ring, the next exchange in flight while this one is used."""
    size, layers = random.randint(3, 5), random.randint(1, 3)
    threads = [Thread(random) for _ in range(size)]
    for rank, thread in enumerate(threads):
        ahead, behind = (rank + 1) % size, (rank - 1) % size
        for _ in range(layers):
            for _ in range(size - 1):
                pair = [Issue("1", "send", peer=ahead), Issue("1", "recv", peer=behind)]
                work = thread.batch(pair, wait="never", line=20)
                thread.compute()
                thread.wait(work)
            thread.issue("0", "all_reduce", line=24)
    groups = {"0": world(size), "1": world(size, "context")}
    return program("context_ring", groups, [[thread] for thread in threads])


def rank_dependent_order(random: Random) -> Program:
    """Each rank starts the same operations of a step in its own order, and then waits for all."""
    size, groups_, steps = random.randint(2, 5), random.randint(2, 3), random.randint(2, 5)
    names = [str(1 + number) for number in range(groups_)]
    threads = [Thread(random) for _ in range(size)]
    fixed = random.random() < 0.5
    for thread in threads:
        order = random.sample(names, groups_)
        for _ in range(steps):
            thread.compute()
            works = []
            for name in order if fixed else random.sample(names, groups_):
                works.append(thread.issue(name, "all_reduce", wait="never", line=20 + int(name)))
            for work in works:
                thread.wait(work, host=True)
            thread.issue("0", "all_reduce", numel=8, line=30)
    groups = {"0": world(size), **{name: world(size, "tower") for name in names}}
    return program("rank_dependent_order", groups, [[thread] for thread in threads])


def subsets(random: Random) -> Program:
    """Overlapping groups of any members, entered by all in one order; some of the same members."""
    size = random.randint(3, 7)
    groups = {"0": world(size)}
    for number in range(random.randint(2, 4)):
        members = tuple(sorted(random.sample(range(size), random.randint(2, size))))
        groups[str(1 + number)] = Group(members, "undefined")
    if random.random() < 0.5:
        groups[str(len(groups))] = groups["1"]
    order = [random.choice(list(groups)) for _ in range(random.randint(6, 14))]
    kinds = [random.choice(("all_reduce", "all_gather", "broadcast", "gather")) for _ in order]
    host: Waits = "host" if random.random() < 0.5 else "stream"
    threads = [Thread(random) for _ in range(size)]
    for place, (name, kind) in enumerate(zip(order, kinds, strict=True)):
        members = groups[name].members
        root = members[0] if kind in ("broadcast", "gather") else None
        for member in members:
            threads[member].compute()
            threads[member].issue(name, kind, root=root, wait=host, line=10 + place)
    return program("subsets", groups, [[thread] for thread in threads])


def threads_of_a_rank(random: Random) -> Program:
    """Main loop, metrics and evaluation from three threads, each on a group of its own."""
    size = random.randint(2, 5)
    counts = [random.randint(2, 6) for _ in range(3)]
    ranks = []
    for _ in range(size):
        mine = []
        for number, count in enumerate(counts):
            thread = Thread(random)
            for _ in range(count):
                thread.compute(0.2, 4)
                host: Waits = "host" if number else "stream"
                thread.issue(str(number), "all_reduce", wait=host, line=10 * (1 + number))
            mine.append(thread)
        ranks.append(mine)
    groups = {"0": world(size), "1": world(size, "metrics"), "2": world(size, "evaluation")}
    return program("threads", groups, ranks)
