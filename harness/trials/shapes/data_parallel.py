"""Shapes in which all ranks do the same: DDP, FSDP2, HSDP, threads of their own, gloo."""

from __future__ import annotations

from random import Random

from hanglab.harness.trials.programs import ANY, Group, Program
from hanglab.harness.trials.shapes.building import Thread, Waits, program, world


def ddp(random: Random) -> Program:
    """Buckets that are reduced while the backward pass goes on, and a join at the step's end."""
    size = random.randint(2, 8)
    return program("ddp", {"0": world(size)}, [[t] for t in _ddp(random, size)])


def _ddp(random: Random, size: int, saves: int = 0) -> list[Thread]:
    buckets, steps, host = random.randint(1, 4), random.randint(2, 6), random.random() < 0.5
    order: Waits = "host" if host else "stream"
    threads = [Thread(random) for _ in range(size)]
    for thread in threads:
        for step in range(steps):
            works = []
            for bucket in range(buckets):
                thread.compute()
                works.append(thread.issue("0", "all_reduce", numel=64 << bucket, wait="never"))
            for work in works:
                thread.wait(work)
            thread.issue("0", "broadcast", numel=4, root=0, line=14, wait=order)
            if step < saves:
                thread.signal(f"save{step}")
    return threads


def checkpoint_thread(random: Random) -> Program:
    """DDP whose ranks save from a second thread, on a group of that thread's own."""
    size, saves = random.randint(2, 8), random.randint(1, 2)
    ranks = [[main] for main in _ddp(random, size, saves)]
    for threads in ranks:
        saver = Thread(random)
        for number in range(saves):
            saver.await_signal(f"save{number}")
            saver.compute(1, 8)
            saver.issue("1", "all_gather", numel=8, wait="host", line=30)
            saver.issue("1", "barrier", wait="host", line=31)
        threads.append(saver)
    backend = random.choice(("nccl", "nccl", "gloo"))
    groups = {"0": world(size), "1": world(size, "checkpoint", backend)}
    return program("checkpoint_thread", groups, ranks)


def unwaited(random: Random) -> Program:
    """Works that nobody ever waits for, on two groups of the same members."""
    size, steps = random.randint(2, 6), random.randint(3, 8)
    threads = [Thread(random) for _ in range(size)]
    for thread in threads:
        for step in range(steps):
            thread.compute(0.1, 1)
            thread.issue("1", "all_reduce", numel=8, wait="never", line=20)
            if step % 2:
                thread.issue("0", "all_reduce", wait="never", line=21)
    groups = {"0": world(size), "1": world(size, "metrics")}
    return program("unwaited", groups, [[thread] for thread in threads])


def fsdp2(random: Random) -> Program:
    """Parameters gathered one layer ahead, gradients scattered behind the backward pass."""
    size = random.randint(2, 8)
    groups = {"0": world(size)}
    return program("fsdp2", groups, [[_fsdp(random, "0", None, r)] for r in _same(random, size)])


def hsdp(random: Random) -> Program:
    """FSDP2 within a node, and gradients reduced between nodes on groups across them."""
    nodes, local = random.randint(2, 3), random.randint(2, 4)
    size = nodes * local
    groups = {"0": world(size)}
    for node in range(nodes):
        groups[f"{1 + node}"] = Group(tuple(range(node * local, (node + 1) * local)), "mesh_shard")
    for place in range(local):
        groups[f"{1 + nodes + place}"] = Group(tuple(range(place, size, local)), "mesh_replicate")
    ranks = []
    for rank, shared in enumerate(_same(random, size)):
        across = f"{1 + nodes + rank % local}"
        ranks.append([_fsdp(random, f"{1 + rank // local}", across, shared)])
    return program("hsdp", groups, ranks)


def _same(random: Random, size: int) -> list[Random]:
    """A source of choices that all ranks make alike, for each rank."""
    seed = random.getrandbits(32)
    return [Random(seed) for _ in range(size)]


def _fsdp(random: Random, shard: str, across: str | None, shared: Random) -> Thread:
    layers, steps, ahead = shared.randint(2, 4), shared.randint(1, 3), shared.randint(0, 2)
    waits_at_end: Waits = "host" if shared.random() < 0.5 else "stream"
    thread = Thread(random)
    for _ in range(steps):
        for way in (range(layers), reversed(range(layers))):
            order = list(way)
            works: list[str] = []
            backward = order[0] != 0
            for place, layer in enumerate(order):
                while len(works) <= min(place + ahead, layers - 1):
                    numel = 32 << order[len(works)]
                    works.append(
                        thread.issue(shard, "all_gather", numel=numel, wait="never", line=40)
                    )
                thread.wait(works[place])
                thread.compute()
                if backward:
                    work = thread.issue(
                        shard, "reduce_scatter", numel=32 << layer, wait="never", line=44
                    )
                    if across is not None:
                        thread.wait(work)
                        thread.issue(across, "all_reduce", numel=32 << layer, wait="never", line=45)
        thread.issue("0", "all_reduce", numel=1, wait=waits_at_end, line=50)
    return thread


def gloo_loop(random: Random) -> Program:
    """Blocking operations on gloo, some of them started early and waited for late."""
    size, steps = random.randint(2, 6), random.randint(2, 6)
    early, rooted = random.random() < 0.4, random.random() < 0.5
    threads = [Thread(random) for _ in range(size)]
    for thread in threads:
        for _ in range(steps):
            work = thread.issue("0", "all_reduce", wait="never" if early else "host", line=10)
            thread.compute()
            if rooted:
                thread.issue("0", "broadcast", numel=4, root=0, wait="host", line=12)
            if early:
                thread.wait(work, host=True)
            thread.issue("0", "barrier", wait="host", line=14)
    return program("gloo_loop", {"0": world(size, backend="gloo")}, [[t] for t in threads])


def any_source(random: Random) -> Program:
    """A gloo coordinator that takes results from whoever is first; its buffers show none of it."""
    size, rounds = random.randint(3, 6), random.randint(1, 3)
    threads = [Thread(random) for _ in range(size)]
    for rank, thread in enumerate(threads):
        for _ in range(rounds):
            if rank:
                thread.compute(0.5, 6)
                thread.issue("0", "send", numel=8, peer=0, wait="host", line=60)
            else:
                for _ in range(size - 1):
                    thread.issue("0", "recv", numel=8, peer=ANY, wait="host", line=62)
            thread.issue("0", "all_reduce", wait="host", line=64)
    return program("any_source", {"0": world(size, backend="gloo")}, [[t] for t in threads])


def mixed_backends(random: Random) -> Program:
    """DDP on NCCL with control decisions on a gloo group of the same ranks."""
    size, steps = random.randint(2, 6), random.randint(2, 5)
    threads = [Thread(random) for _ in range(size)]
    every = random.randint(1, 2)
    for thread in threads:
        for step in range(steps):
            thread.compute()
            thread.issue("0", "all_reduce", numel=64, line=10)
            thread.issue("0", "all_reduce", numel=32, line=11, wait="never")
            if step % every == 0:
                thread.issue("1", "all_gather", numel=2, wait="host", line=13)
                thread.issue("1", "barrier", wait="host", line=14)
    groups = {"0": world(size), "1": world(size, "control", "gloo")}
    return program("mixed_backends", groups, [[thread] for thread in threads])
