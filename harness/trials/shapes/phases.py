"""Shapes of phases: objects between steps, games of two models, evaluation by some, early stops."""

from __future__ import annotations

from random import Random

from hanglab.harness.trials.programs import Group, Program
from hanglab.harness.trials.shapes.building import Thread, Waits, program, world


def objects(random: Random) -> Program:
    """Objects broadcast and gathered by one helper, several in a row: a size, then the payload.

    Of data that each has, so that no payload is as long as another, on a group of their own or not.
    """
    size, steps, every = random.randint(2, 6), random.randint(1, 8), random.randint(1, 3)
    side = random.choice(("0", "1"))
    backend = random.choice(("nccl", "nccl", "gloo")) if side == "1" else "nccl"
    apart, buckets = random.random() < 0.5, random.randint(1, 2)
    rounds = [
        [(random.choice((None, 0, size - 1)), random.randint(8, 999)) for _ in range(count)]
        for count in (random.randint(1, 4) for _ in range(steps))
    ]
    threads = [Thread(random) for _ in range(size)]
    for rank, thread in enumerate(threads):
        for step in range(steps):
            for _ in range(buckets):
                thread.compute()
                thread.issue("0", "all_reduce", numel=256, wait="stream", line=10)
            for root, length in rounds[step] if step % every == 0 else ():
                kind = "all_gather" if root is None else "broadcast"
                line = 20 if root is None else 24
                # Who sends has a line of its own, where the code says "if rank == root".
                line += 10 if apart and root == rank else 0
                for numel, dtype in ((1, "Long"), (length, "Byte")):
                    options = {"numel": numel, "dtype": dtype, "root": root}
                    thread.issue(side, kind, wait="host", line=line, **options)
        thread.issue("0", "barrier", wait="host", line=40)
    groups = {"0": world(size)} | ({"1": world(size, "objects", backend)} if side == "1" else {})
    return program("objects", groups, [[thread] for thread in threads])


def adversaries(random: Random) -> Program:
    """A GAN: two models that are reduced on groups of their own, the one oftener than the other.

    By all ranks, or each by a part of them, and then fakes are sent there and gradients back.
    """
    if random.random() < 0.5:
        return _adversaries_apart(random)
    size, steps, critic = random.randint(2, 6), random.randint(1, 6), random.randint(1, 4)
    buckets, unwaited = random.randint(1, 3), random.random() < 0.3
    one_line, penalty = random.random() < 0.5, random.randint(0, 2)
    groups = {"0": world(size), "1": world(size, "generator"), "2": world(size, "critic")}
    threads = [Thread(random) for _ in range(size)]
    for thread in threads:

        def backward(group: str, line: int, thread: Thread = thread) -> None:
            works = []
            for bucket in range(buckets):
                thread.compute(0.2, 1)
                options = {"numel": 64 << bucket, "line": 10 if one_line else line}
                works.append(thread.issue(group, "all_reduce", wait="never", **options))
            for work in works if not unwaited else ():
                thread.wait(work)

        for step in range(steps):
            for turn in range(critic):
                backward("2", 12)
                if penalty and turn % penalty == 0:
                    thread.issue("2", "all_reduce", numel=1, line=14)
            backward("1", 16)
            if step % 2:
                thread.issue("0", "all_reduce", numel=2, wait="host", line=20)
        thread.issue("0", "barrier", wait="host", line=22)
    return program("adversaries", groups, [[thread] for thread in threads])


def _adversaries_apart(random: Random) -> Program:
    pairs, steps, critic = random.randint(1, 4), random.randint(1, 6), random.randint(1, 3)
    size, logs, lines = 2 * pairs, random.randint(1, 3), random.choice((0, 10))
    waits: Waits = random.choice(("stream", "stream", "host"))
    groups = {
        "0": world(size),
        "1": Group(tuple(range(pairs)), "generator"),
        "2": Group(tuple(range(pairs, size)), "critic"),
        "3": world(size, "fakes"),
    }
    threads = [Thread(random) for _ in range(size)]
    for rank, thread in enumerate(threads):
        makes = rank < pairs
        mine, other = ("1", rank + pairs) if makes else ("2", rank - pairs)
        for step in range(1, steps + 1):
            for _ in range(critic):
                thread.compute()
                kind = "send" if makes else "recv"
                thread.issue("3", kind, peer=other, numel=96, wait=waits, line=30 + lines * makes)
                if not makes and pairs > 1:
                    thread.issue(mine, "all_reduce", numel=128, line=32)
            thread.compute()
            kind = "recv" if makes else "send"
            thread.issue("3", kind, peer=other, numel=96, wait=waits, line=34 + lines * makes)
            if makes and pairs > 1:
                thread.issue(mine, "all_reduce", numel=64, line=36)
            if step % logs == 0:
                thread.issue("0", "all_reduce", numel=2, wait="host", line=38)
    return program("adversaries_apart", groups, [[thread] for thread in threads])


def partial_evaluation(random: Random) -> Program:
    """Some ranks evaluate on a group of their own while the others stand in a barrier, or train on.

    The first of them broadcasts the score to all, once it is there.
    """
    size, steps, every = random.randint(3, 8), random.randint(2, 8), random.randint(1, 4)
    some = tuple(sorted(random.sample(range(size), random.randint(1, size - 1))))
    batches = [random.randint(1, 5) for _ in range(steps)]
    after, scores = random.random() < 0.6, random.random() < 0.5
    groups = {"0": world(size), "1": Group(some, "evaluation"), "2": world(size, "control")}
    control = random.choice(("0", "2"))
    threads = [Thread(random) for _ in range(size)]
    for rank, thread in enumerate(threads):
        for step in range(1, steps + 1):
            for _ in range(2):
                thread.compute()
                thread.issue("0", "all_reduce", numel=128, line=10)
            if step % every:
                continue
            if rank in some:
                for _ in range(batches[step - 1]):
                    thread.compute()
                    thread.issue("1", "all_gather", numel=16, line=20)
                thread.issue("1", "all_reduce", numel=1, wait="host", line=22)
            if scores:
                line = 24 if rank == some[0] else 26
                thread.issue(control, "broadcast", numel=1, root=some[0], wait="host", line=line)
            if after:
                thread.issue(control, "barrier", wait="host", line=28)
        thread.issue("0", "barrier", wait="host", line=30)
    return program("partial_evaluation", groups, [[thread] for thread in threads])


def early_stop(random: Random) -> Program:
    """Training until a flag is reduced that ends it; the first of each replica saves on the way.

    Between two barriers of its replica, or from a thread of its own, while others train on.
    """
    local, replicas = random.choice(((1, 3), (2, 2), (2, 3), (3, 2), (4, 2), (2, 4)))
    size, steps, every = local * replicas, random.randint(1, 12), random.randint(1, 4)
    behind, decides = random.random() < 0.3, random.random() < 0.5
    groups = {"0": world(size)}
    for first in range(0, size, local):
        groups[str(len(groups))] = Group(tuple(range(first, first + local)), "replica")
    leaders = str(len(groups))
    if behind:
        saving = Group(tuple(range(0, size, local)), "save", random.choice(("nccl", "gloo")))
        groups[leaders] = saving
    ranks = []
    for rank in range(size):
        thread, saver = Thread(random), Thread(random)
        replica, saves = str(1 + rank // local), 0
        for step in range(1, steps + 1):
            thread.compute()
            if local > 1:
                thread.issue(replica, "all_gather", line=10)
            thread.issue("0", "all_reduce", numel=256, line=12)
            if step % every == 0:
                if behind and rank % local == 0:
                    thread.signal(f"save{saves}")
                    saver.await_signal(f"save{saves}")
                    saver.compute(2, 8)
                    saver.issue(leaders, "all_gather", numel=8, wait="host", line=40)
                    saves += 1
                elif not behind:
                    thread.issue(replica, "barrier", wait="host", line=20)
                    if rank % local == 0:
                        thread.compute(2, 8)
                    thread.issue(replica, "barrier", wait="host", line=22)
            thread.issue("0", "all_reduce", numel=1, dtype="Int", wait="host", line=30)
            if decides:
                thread.issue("0", "broadcast", numel=1, root=0, wait="host", line=32)
        if not behind and steps % every:
            thread.issue(replica, "barrier", wait="host", line=20)
        ranks.append([thread, saver] if saver.steps else [thread])
    return program("early_stop", groups, ranks)
