"""Shapes of requests and of batches that one rank hands to the others, of sizes of the data."""

from __future__ import annotations

from random import Random

from hanglab.harness.trials.programs import Group, Program
from hanglab.harness.trials.shapes.building import Thread, Waits, program, world


def server(random: Random) -> Program:
    """Tensor-parallel inference: the first of each replica broadcasts requests and tokens.

    Its loop is another one than that of the others; replicas answer what comes to them, and idle.
    """
    width, replicas = random.choice(((2, 1), (3, 1), (6, 1), (2, 2), (3, 2), (2, 3), (4, 2)))
    size, layers, logs = width * replicas, random.randint(1, 3), random.random() < 0.5
    # A helper broadcasts from one line, or the loops of the leader and of the others do.
    helper, samples = random.random() < 0.5, random.random() < 0.5
    counts = [random.randint(1, 5) for _ in range(replicas)]
    groups = {"0": world(size)}
    for replica in range(replicas):
        members = tuple(range(replica * width, (replica + 1) * width))
        groups[str(1 + replica)] = Group(members, "tensor")
    groups[str(1 + replicas)] = Group(tuple(range(0, size, width)), "leaders", "gloo")
    lengths = [
        [(random.randint(4, 99), random.randint(1, 4)) for _ in range(count)] for count in counts
    ]
    threads = [Thread(random) for _ in range(size)]
    for rank, thread in enumerate(threads):
        replica, place = divmod(rank, width)
        group, first = str(1 + replica), replica * width

        def say(
            numel: int, line: int, thread: Thread = thread, group: str = group, place: int = place,
            first: int = first,
        ) -> None:  # fmt: skip
            line = 10 if helper else line + 10 * (place == 0)
            options = {"numel": numel, "dtype": "Long", "root": first, "line": line}
            thread.issue(group, "broadcast", wait="host", **options)

        def run(tokens: int, thread: Thread = thread, group: str = group) -> None:
            for layer in range(2 * layers):
                thread.compute(0.1, 0.5)
                thread.issue(group, "all_reduce", numel=16 * tokens, line=40 + layer % 2)

        thread.issue("0", "barrier", wait="host", line=8)
        for prompt, answer in lengths[replica]:
            if place == 0:
                thread.compute(0.5, 20)
            say(2, 12)
            say(prompt, 14)
            run(prompt)
            for _ in range(answer):
                if samples:
                    say(1, 16)
                else:
                    thread.issue(group, "all_gather", numel=32, line=44)
                run(1)
        say(2, 12)
        if logs and place == 0 and replicas > 1:
            thread.issue(str(1 + replicas), "all_gather", numel=4, wait="host", line=48)
        thread.issue("0", "barrier", wait="host", line=50)
    if not logs or replicas == 1:
        del groups[str(1 + replicas)]
    return program("server", groups, [[thread] for thread in threads])


def dealt_batches(random: Random) -> Program:
    """Rank 0 alone reads, and sends each its part; metrics are gathered at it now and then.

    Lengths come ahead of what is packed; all go to who is next, or each is waited for.
    """
    size, steps, every = random.randint(2, 7), random.randint(1, 10), random.randint(1, 4)
    packed, buckets, rate = random.random() < 0.5, random.randint(1, 2), random.random() < 0.5
    data = random.choice(("0", "1"))
    waits: Waits = random.choice(("host", "stream", "never"))
    threads = [Thread(random) for _ in range(size)]
    for step in range(1, steps + 1):
        parts = [random.randint(16, 64) if packed else 64 for _ in threads]
        for rank, thread in enumerate(threads):
            if rank == 0:
                thread.compute(1, 4)
                for peer in range(1, size):
                    for numel in (1, parts[peer]) if packed else (64,):
                        line = 12 if numel == 1 else 14
                        options = {"peer": peer, "numel": numel, "line": line}
                        thread.issue(data, "send", wait=waits, **options)
            else:
                for numel in (1, parts[rank]) if packed else (64,):
                    line = 16 if numel == 1 else 18
                    blocks: Waits = "host" if numel == 1 else "stream"
                    thread.issue(data, "recv", peer=0, numel=numel, wait=blocks, line=line)
            for bucket in range(buckets):
                thread.compute()
                thread.issue("0", "all_reduce", numel=128 << bucket, line=20)
            if step % every == 0:
                thread.issue("0", "gather", numel=4, root=0, wait="host", line=24)
                if rate:
                    line = 26 if rank == 0 else 28
                    thread.issue("0", "broadcast", numel=1, root=0, wait="host", line=line)
        if rate and step == steps:
            for thread in threads:
                thread.issue("0", "barrier", wait="host", line=30)
    groups = {"0": world(size)} | ({"1": world(size, "data")} if data == "1" else {})
    return program("dealt_batches", groups, [[thread] for thread in threads])


def depths(random: Random) -> Program:
    """FSDP of layers of which each step uses some: who is passed over is not gathered at all.

    All ranks draw alike, or a vote is reduced ahead; gradients are reduced for those in use alone.
    """
    size, layers, steps = random.randint(2, 8), random.randint(2, 6), random.randint(1, 6)
    votes, ahead, equal = random.random() < 0.5, random.randint(0, 1), random.random() < 0.5
    keep = random.choice((0.4, 0.7))
    used = [[layer for layer in range(layers) if random.random() < keep] for _ in range(steps)]
    threads = [Thread(random) for _ in range(size)]
    for thread in threads:
        for step in range(steps):
            if votes:
                thread.issue("1", "all_reduce", numel=layers, wait="host", line=10)
            for back, order in ((False, used[step]), (True, used[step][::-1])):
                works: list[str] = []
                for place, layer in enumerate(order):
                    for following in order[len(works) : place + 1 + ahead]:
                        numel = 64 if equal else 32 << following
                        options = {"numel": numel, "line": 20}
                        works.append(thread.issue("0", "all_gather", wait="never", **options))
                    thread.wait(works[place])
                    thread.compute()
                    if back:
                        numel = 64 if equal else 32 << layer
                        options = {"numel": numel, "line": 24}
                        thread.issue("0", "reduce_scatter", wait="never", **options)
            thread.issue("0", "all_reduce", numel=1, wait="host", line=30)
    groups = {"0": world(size)} | ({"1": world(size, "router")} if votes else {})
    return program("depths", groups, [[thread] for thread in threads])
