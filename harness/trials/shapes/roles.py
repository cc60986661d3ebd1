"""Shapes in which ranks have parts of their own: actors, islands, owners of buckets, stages."""

from __future__ import annotations

from random import Random

from hanglab.harness.trials.programs import Group, Issue, Program
from hanglab.harness.trials.shapes.building import Thread, Waits, program, splits, takes, world


def actors_and_rollouts(random: Random) -> Program:
    """RLHF: rollouts generate and send it to the first actor, which sends weights after training.

    Answers end when they end, and updates stop early, so their numbers differ from round to round.
    A rollout may generate once more before it takes the weights of the round before.
    """
    actors, rollouts, rounds = random.randint(2, 3), random.randint(2, 4), random.randint(1, 4)
    layers, ahead = random.randint(1, 3), random.random() < 0.5
    size, leader = actors + rollouts, actors
    generators = tuple(range(actors, size))
    tokens = [random.randint(1, 4) for _ in range(rounds)]
    updates = [random.randint(1, 3) for _ in range(rounds)]
    lengths = [random.randint(8, 99) for _ in range(rounds)]
    groups = {
        "0": world(size),
        "1": Group(tuple(range(actors)), "actor"),
        "2": Group(generators, "rollout"),
        "3": Group((0, *generators), "weights"),
    }
    mail = random.choice(("0", "3"))
    threads = [Thread(random) for _ in range(size)]

    def load(thread: Thread) -> None:
        for layer in range(layers):
            thread.issue("3", "broadcast", numel=64 << layer, root=0, line=30)

    for rank, thread in enumerate(threads):
        thread.issue("0", "barrier", wait="host", line=8)
        for turn in range(rounds):
            if rank in generators:
                for _ in range(tokens[turn]):
                    thread.compute()
                    thread.issue("2", "all_reduce", line=10)
                if ahead and turn:
                    load(thread)
                if rank == leader:
                    for numel, line in ((2, 12), (lengths[turn], 13)):
                        thread.issue(mail, "send", peer=0, numel=numel, wait="host", line=line)
                if not ahead:
                    load(thread)
                continue
            for numel, line in ((2, 20), (lengths[turn], 22)):
                if rank == 0:
                    thread.issue(mail, "recv", peer=leader, numel=numel, wait="host", line=line)
                thread.issue("1", "broadcast", numel=numel, root=0, wait="host", line=line + 1)
            for _ in range(updates[turn]):
                thread.compute()
                thread.issue("1", "all_reduce", numel=256, line=26)
                thread.issue("1", "all_reduce", numel=1, wait="host", line=28)
            if rank == 0:
                load(thread)
        if ahead and rank in generators:
            load(thread)
    return program("actors_and_rollouts", groups, [[thread] for thread in threads])


def islands(random: Random) -> Program:
    """DiLoCo: islands take steps of their own, as many as each is fast; their means now and then.

    Fragments of the model are reduced across islands one by one, in the background of what follows.
    """
    count, local, rounds = random.randint(2, 3), random.randint(2, 3), random.randint(1, 4)
    fragments, late = random.randint(1, 3), random.random() < 0.5
    least = random.randint(1, 3)
    own = random.random() < 0.5
    inner = [least + (random.randint(0, 2) if own else 0) for _ in range(count)]
    logs = random.random() < 0.5
    size = count * local
    groups = {"0": world(size)}
    for island in range(count):
        groups[f"{1 + island}"] = Group(tuple(range(island * local, (island + 1) * local)), "inner")
    for place in range(local):
        groups[f"{1 + count + place}"] = Group(tuple(range(place, size, local)), "outer")
    threads = [Thread(random) for _ in range(size)]
    for rank, thread in enumerate(threads):
        inside, across = f"{1 + rank // local}", f"{1 + count + rank % local}"
        under_way: list[str] = []
        for _ in range(rounds):
            for _ in range(inner[rank // local]):
                thread.compute()
                thread.issue(inside, "reduce_scatter", numel=64, line=10)
                thread.issue(inside, "all_gather", numel=64, line=12)
                for work in under_way:
                    thread.wait(work)
                under_way = []
            for fragment in range(fragments):
                numel = 128 << fragment
                work = thread.issue(across, "all_reduce", numel=numel, wait="never", line=20)
                under_way.append(work)
                if not late:
                    thread.wait(work)
            if logs:
                thread.issue("0", "all_reduce", numel=1, wait="host", line=24)
        for work in under_way:
            thread.wait(work, host=True)
        thread.issue("0", "barrier", wait="host", line=30)
    return program("islands", groups, [[thread] for thread in threads])


def owners(random: Random) -> Program:
    """ZeRO-2: each bucket is reduced to its owner, which broadcasts it back; objects in between.

    An object's length comes ahead of it.  Rank 0 saves alone, and the others wait at a barrier.
    """
    size, buckets, steps = random.randint(2, 6), random.randint(2, 5), random.randint(1, 4)
    every = random.randint(1, 3)
    lengths = [random.randint(8, 99) for _ in range(steps)]
    order: Waits = "host" if random.random() < 0.3 else "stream"
    side = random.choice(("0", "1"))
    threads = [Thread(random) for _ in range(size)]
    for rank, thread in enumerate(threads):
        for step in range(steps):
            if step % every == 0:
                for numel, line in ((1, 10), (lengths[step], 11)):
                    thread.issue(side, "broadcast", numel=numel, root=0, wait="host", line=line)
            works = []
            for bucket in reversed(range(buckets)):
                thread.compute()
                options = {"numel": 32 << bucket, "root": bucket % size, "line": 20}
                works.append(thread.issue("0", "reduce", wait="never", **options))
            for work in works:
                thread.wait(work)
            thread.issue("0", "all_reduce", numel=1, wait=order, line=24)
            works = []
            for bucket in range(buckets):
                if bucket % size == rank:
                    thread.compute()
                options = {"numel": 32 << bucket, "root": bucket % size, "line": 26}
                works.append(thread.issue("0", "broadcast", wait="never", **options))
            for work in works:
                thread.wait(work)
            if step % every == every - 1:
                if rank == 0:
                    thread.compute(2, 8)
                thread.issue(side, "barrier", wait="host", line=30)
    groups = {"0": world(size), "1": world(size, "control")}
    return program("owners", groups, [[thread] for thread in threads])


def tied_embeddings(random: Random) -> Program:
    """Stages of sequence-parallel pairs; the first and the last reduce the embedding they share."""
    stages, micro, steps = random.randint(3, 4), random.randint(2, 3), random.randint(1, 2)
    size, last = 2 * stages, stages - 1
    groups = {"0": world(size)}
    for stage in range(stages):
        groups[f"{1 + stage}"] = Group((2 * stage, 2 * stage + 1), "tensor")
    for place in range(2):
        groups[f"{1 + stages + place}"] = Group(tuple(range(place, size, 2)), "pipeline")
        groups[f"{3 + stages + place}"] = Group((place, size - 2 + place), "embedding")
    host: Waits = "host" if random.random() < 0.3 else "stream"
    threads = [Thread(random) for _ in range(size)]
    for rank, thread in enumerate(threads):
        stage, place = divmod(rank, 2)
        pair, pipe, embedding = (str(1 + n) for n in (stage, stages + place, 2 + stages + place))

        def passes(line: int, thread: Thread = thread, pair: str = pair) -> None:
            thread.issue(pair, "all_gather", numel=16, line=line)
            thread.compute()
            thread.issue(pair, "reduce_scatter", numel=16, line=line + 1)

        for _ in range(steps):
            for _ in range(micro):
                if stage > 0:
                    thread.batch([Issue(pipe, "recv", peer=rank - 2)], wait=host, line=20)
                passes(10)
                if stage < last:
                    thread.batch([Issue(pipe, "send", peer=rank + 2)], wait=host, line=22)
            for _ in range(micro):
                if stage < last:
                    thread.batch([Issue(pipe, "recv", peer=rank + 2)], wait=host, line=30)
                passes(14)
                if stage > 0:
                    thread.batch([Issue(pipe, "send", peer=rank - 2)], wait=host, line=32)
            if stage in (0, last):
                thread.issue(embedding, "all_reduce", numel=512, line=40)
            thread.issue("0", "all_reduce", numel=1, wait="host", line=42)
    return program("tied_embeddings", groups, [[thread] for thread in threads])


def branches(random: Random) -> Program:
    """DDP with branches by rank: the first calls from lines of its own what all others call too.

    It loads and broadcasts, collects and saves; the others call the same from an else branch.
    """
    size, buckets, steps = random.randint(2, 6), random.randint(1, 3), random.randint(2, 6)
    every, loads = random.randint(1, 3), random.random() < 0.7
    leaders = random.choice((1, 1, max(1, size // 2)))  # one of the job, or one of each node
    side = random.choice(("0", "1"))
    order: Waits = "host" if random.random() < 0.5 else "stream"
    threads = [Thread(random) for _ in range(size)]
    for rank, thread in enumerate(threads):
        other = 0 if rank < leaders else 4
        for step in range(1, steps + 1):
            if loads:
                if rank == 0:
                    thread.compute()
                thread.issue(side, "broadcast", numel=32, root=0, line=20 + other, wait=order)
            works = []
            for bucket in range(buckets):
                thread.compute()
                works.append(
                    thread.issue("0", "all_reduce", numel=64 << bucket, wait="never", line=10)
                )
            for work in works:
                thread.wait(work)
            if step % every == 0:
                thread.issue(side, "gather", numel=8, root=0, line=30 + other, wait="host")
                if rank < leaders:
                    thread.compute(1, 6)
                thread.issue(side, "barrier", line=40 + other, wait="host")
        thread.issue("0", "all_reduce", numel=1, line=50 + other, wait="host")
    groups = {"0": world(size), "1": world(size, "control")}
    return program("branches", groups, [[thread] for thread in threads])


def routed_experts(random: Random) -> Program:
    """Experts whose tokens come behind their numbers; a layer that nobody's tokens need is skipped.

    What all experts share is reduced over all ranks, what one holds over those that hold it too.
    """
    width, copies, steps = random.randint(2, 4), random.randint(1, 2), random.randint(1, 3)
    layers, skips = random.randint(1, 3), random.random() < 0.5
    size = width * copies
    groups = {"0": world(size)}
    for copy in range(copies):
        groups[f"{1 + copy}"] = Group(tuple(range(copy * width, (copy + 1) * width)), "expert")
    for place in range(width if copies > 1 else 0):
        groups[f"{1 + copies + place}"] = Group(tuple(range(place, size, width)), "expert_data")
    threads = [Thread(random) for _ in range(size)]
    for _ in range(steps):
        used = [not skips or random.random() < 0.6 for _ in range(layers * copies)]
        # Layers there and, in the backward pass, back.
        ways = [(layer, 20) for layer in range(layers)]
        ways += [(layer, 30) for layer in reversed(range(layers))]
        for layer, line in ways:
            for copy in range(copies):
                name = f"{1 + copy}"
                members = groups[name].members
                ones = dict.fromkeys(members, (1,) * width)
                out = splits(random, members)
                back = {member: takes(out, members, member) for member in members}
                for member in members:
                    thread = threads[member]
                    thread.compute()
                    thread.issue(
                        name, "all_to_all", gives=ones[member], takes=ones[member],
                        wait="host", line=line,
                    )  # fmt: skip
                    if not used[copy * layers + layer]:
                        continue
                    for offset, gives in ((1, out), (2, back)):
                        received = takes(gives, members, member)
                        thread.issue(
                            name, "all_to_all", gives=gives[member], takes=received,
                            line=line + offset,
                        )  # fmt: skip
                        thread.compute()
        for rank, thread in enumerate(threads):
            if copies > 1:
                thread.issue(f"{1 + copies + rank % width}", "all_reduce", numel=256, line=40)
            thread.issue("0", "all_reduce", numel=128, line=42)
    return program("routed_experts", groups, [[thread] for thread in threads])
