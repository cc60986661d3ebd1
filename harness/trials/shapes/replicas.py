"""Replicas of pipelines over several steps, and loops that evaluate and log between their steps."""

from __future__ import annotations

from random import Random

from hanglab.harness.trials.programs import Group, Issue, Program
from hanglab.harness.trials.shapes.building import Thread, Waits, program, world


def replicated_pipeline(random: Random) -> Program:
    """1F1B in each of several replicas; microbatches may grow, or differ from replica to replica.

    A norm is reduced within each replica, gradients across them, by stage.
    """
    stages, replicas, steps = random.randint(2, 4), random.randint(1, 3), random.randint(1, 4)
    counts = _microbatches(random, stages, replicas, steps)
    one_line, checks = random.random() < 0.5, random.random() < 0.3
    waits: Waits = "host" if random.random() < 0.3 else "stream"
    size = stages * replicas
    groups = {"0": world(size)}
    for replica in range(replicas):
        members = tuple(range(replica, size, replicas))
        groups[f"{1 + replica}"] = Group(members, "pipeline")
        groups[f"{1 + replicas + replica}"] = Group(members, "model")
    for stage in range(stages if replicas > 1 else 0):
        members = tuple(range(stage * replicas, (stage + 1) * replicas))
        groups[f"{1 + 2 * replicas + stage}"] = Group(members, "data")
    threads = [Thread(random) for _ in range(size)]
    for rank, thread in enumerate(threads):
        stage, replica = divmod(rank, replicas)
        pipe, model, data = (
            str(1 + n) for n in (replica, replicas + replica, 2 * replicas + stage)
        )
        if checks:
            thread.issue("0", "broadcast", numel=4, root=0, line=12)
        for step in range(steps):
            before = rank - replicas if stage else None
            after = rank + replicas if stage + 1 < stages else None
            schedule = _one_forward_one_backward(counts[replica][step], stages - stage - 1)
            for ends, line in schedule:
                if not ends:
                    thread.compute()
                    continue
                peers = [(kind, before if side == "before" else after) for kind, side in ends]
                issues = [Issue(pipe, k, peer=p) for k, p in peers if p is not None]
                thread.batch(issues, wait=waits, line=28 if one_line else line)
            if replicas > 1:
                thread.issue(data, "reduce_scatter", numel=256 << stage, line=40)
            thread.issue(model, "all_reduce", numel=1, wait="host", line=42)
            if replicas > 1:
                thread.issue(data, "all_gather", numel=32 << stage, line=44)
    return program("replicated_pipeline", groups, [[thread] for thread in threads])


def _microbatches(random: Random, stages: int, replicas: int, steps: int) -> list[list[int]]:
    """Of each replica in each step: equal, growing, or as the data of each has it."""
    kind, least = random.choice(("equal", "equal", "growing", "own")), random.randint(2, stages + 2)
    if kind == "own":
        return [[least + random.randint(0, 2) for _ in range(steps)] for _ in range(replicas)]
    return [[least + (step if kind == "growing" else 0) for step in range(steps)]] * replicas


def _one_forward_one_backward(
    micro: int, behind: int
) -> list[tuple[tuple[tuple[str, str], ...], int]]:
    """Batches of a stage with so many behind it, each with its line; none for a computation."""
    found: list[tuple[tuple[tuple[str, str], ...], int]] = []
    warm = min(micro, behind)
    for _ in range(warm):
        found += [((("recv", "before"),), 20), ((), 0), ((("send", "after"),), 22)]
    if micro > warm:
        found.append(((("recv", "before"),), 24))
    for number in range(warm, micro):
        found += [((), 0), ((("send", "after"), ("recv", "after")), 26), ((), 0)]
        last = number == micro - 1
        both = (("send", "before"),) if last else (("send", "before"), ("recv", "before"))
        found.append((both, 27 if last else 28))
    for _ in range(warm):
        found += [((("recv", "after"),), 30), ((), 0), ((("send", "before"),), 32)]
    return found


def evaluating_loop(random: Random) -> Program:
    """Tensor- and data-parallel steps with an evaluation and a log line after some of them.

    One rank logs on a group of its own and one other's; the first evaluation may be all there is.
    """
    tensor, replicas, steps = random.randint(1, 2), random.randint(2, 4), random.randint(3, 8)
    evaluates, logs = random.randint(2, 4), random.randint(1, 3)
    batches, saves = random.randint(1, 3), random.random() < 0.5
    size = tensor * replicas
    groups = {"0": world(size)}
    groups |= {
        f"{1 + i}": Group(tuple(range(i * tensor, (i + 1) * tensor)), "tensor")
        for i in range(replicas if tensor > 1 else 0)
    }
    first = len(groups)
    groups |= {
        f"{first + i}": Group(tuple(range(i, size, tensor)), "data")
        for i in range(tensor if tensor > 1 else 0)
    }
    side = str(len(groups))
    groups[side] = Group((0, size - 1), "logging")
    host: Waits = "host" if random.random() < 0.5 else "stream"
    threads = [Thread(random) for _ in range(size)]
    for rank, thread in enumerate(threads):
        pair = f"{1 + rank // tensor}" if tensor > 1 else None
        data = f"{first + rank % tensor}" if tensor > 1 else "0"
        for step in range(1, steps + 1):
            thread.compute()
            if pair is not None:
                thread.issue(pair, "all_reduce", line=10)
                thread.compute()
            thread.issue(data, "all_reduce", numel=256, wait=host, line=12)
            if step % logs == 0:
                thread.issue("0", "all_reduce", numel=1, wait="host", line=14)
                if rank in groups[side].members:
                    thread.issue(side, "gather", numel=8, root=0, wait="host", line=16)
            if step % evaluates == 0:
                for _ in range(batches):
                    thread.compute()
                    if pair is not None:
                        thread.issue(pair, "all_reduce", line=20)
                thread.issue("0", "all_reduce", numel=2, wait="host", line=22)
                if saves:
                    thread.issue("0", "barrier", wait="host", line=24)
    return program("evaluating_loop", groups, [[thread] for thread in threads])
