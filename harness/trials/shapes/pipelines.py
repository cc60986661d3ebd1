"""Pipeline schedules: GPipe, 1F1B, interleaved with virtual stages, receives posted early."""

from __future__ import annotations

from random import Random

from hanglab.harness.trials.programs import Group, Issue, Program
from hanglab.harness.trials.shapes.building import Thread, program, world

#: Forward or backward pass of a microbatch on a (virtual) stage.
Unit = tuple[str, int, int]


def gpipe(random: Random) -> Program:
    """All forward, then all backward, receives posted where they are needed."""
    return _stages(random, "gpipe", early=False, separate=False)


def overlap(random: Random) -> Program:
    """1F1B, receives posted one microbatch early, forward and backward on groups of their own."""
    return _stages(random, "overlap", early=True, separate=True)


def early_receive(random: Random) -> Program:
    """Receives posted early and waited for late, on one group."""
    return _stages(random, "early_receive", early=True, separate=False)


def _stages(random: Random, shape: str, *, early: bool, separate: bool) -> Program:
    size, micro = random.randint(2, 5), random.randint(3, 7)
    groups = {"0": world(size), "1": world(size, "forward")}
    forward = backward = "1"
    if separate:
        backward, groups["2"] = "2", world(size, "backward")
    waits_on_host = random.random() < 0.3
    ranks: list[list[Thread]] = []
    for stage in range(size):
        # On one communicator a pair has one stream: only all forward, then all backward is legal.
        warm = min(micro, size - stage) if separate else micro
        order = [("f", number) for number in range(warm)]
        for number in range(warm, micro):
            order += [("b", number - warm), ("f", number)]
        order += [("b", number) for number in range(micro - warm, micro)]
        arrivals = [
            (unit, forward if unit[0] == "f" else backward, source)
            for unit in order
            if 0 <= (source := stage + (-1 if unit[0] == "f" else 1)) < size
        ]
        thread = Thread(random)
        works: list[str] = []  # of the receives posted so far
        for unit in order:
            index = next((i for i, one in enumerate(arrivals) if one[0] == unit), None)
            if index is not None:
                following = arrivals[index + 1 : index + 2]
                same_way = any(one[0][0] == unit[0] for one in following)
                through = min(index + 1 + (early and (separate or same_way)), len(arrivals))
                for _, group, source in arrivals[len(works) : through]:
                    works.append(thread.issue(group, "recv", peer=source, wait="never", line=20))
                thread.wait(works[index], host=waits_on_host)
            thread.compute()
            target = stage + (1 if unit[0] == "f" else -1)
            if 0 <= target < size:
                group, line = (forward, 22) if unit[0] == "f" else (backward, 23)
                thread.issue(group, "send", peer=target, wait="never", line=line)
        thread.issue("0", "all_reduce", wait="host", line=40)
        ranks.append([thread])
    return program(shape, groups, ranks)


def one_forward_one_backward(random: Random) -> Program:
    """Megatron's 1F1B: in the steady state one batch sends forward and receives backward."""
    size, micro = random.randint(2, 5), random.randint(3, 7)
    ranks: list[list[Thread]] = []
    waits_on_host = random.random() < 0.3
    for stage in range(size):
        thread = Thread(random)

        def exchange(*ends: tuple[str, int], line: int, thread: Thread = thread) -> None:
            issues = [Issue("1", kind, peer=peer) for kind, peer in ends if 0 <= peer < size]
            thread.batch(issues, wait="host" if waits_on_host else "stream", line=line)

        before, after = stage - 1, stage + 1
        warm = min(micro, size - stage - 1)
        for _ in range(warm):
            exchange(("recv", before), line=20)
            thread.compute()
            exchange(("send", after), line=22)
        if micro > warm:
            exchange(("recv", before), line=24)
        for number in range(warm, micro):
            thread.compute()
            exchange(("send", after), ("recv", after), line=26)
            thread.compute()
            if number == micro - 1:
                exchange(("send", before), line=27)
            else:
                exchange(("send", before), ("recv", before), line=28)
        for _ in range(warm):
            exchange(("recv", after), line=30)
            thread.compute()
            exchange(("send", before), line=32)
        thread.issue("0", "all_reduce", wait="host", line=40)
        ranks.append([thread])
    groups = {"0": world(size), "1": world(size, "pipeline")}
    return program("1f1b_batched", groups, ranks)


def interleaved(random: Random) -> Program:
    """Virtual stages, several a rank: the batches of a tick carry what the tick before made."""
    size, chunks = random.randint(2, 4), random.randint(2, 3)
    micro = size * random.randint(1, 2)
    stages = size * chunks
    made: dict[Unit, int] = {}  # the tick in which it was computed
    ticks: list[list[Unit | None]] = []
    while len(made) < 2 * stages * micro:
        row: list[Unit | None] = []
        for rank in range(size):
            ready = [
                unit
                for stage in range(rank, stages, size)
                for number in range(micro)
                for unit in (("b", number, stage), ("f", number, stage))
                if unit not in made and all(one in made for one in _needs(unit, stages))
            ]
            row.append(min(ready, default=None, key=lambda u: (u[0], u[1], u[2])))
        for unit in row:
            if unit is not None:
                made[unit] = len(ticks)
        ticks.append(row)
    threads = [Thread(random) for _ in range(size)]
    for row in ticks:
        batches: list[list[Issue]] = [[] for _ in range(size)]
        for rank, unit in enumerate(row):
            if unit is None:
                continue
            threads[rank].compute()
            way, _, stage = unit
            target = stage + (1 if way == "f" else -1)
            if 0 <= target < stages and target % size != rank:
                batches[rank].append(Issue("1", "send", peer=target % size))
                batches[target % size].append(Issue("1", "recv", peer=rank))
        for thread, issues in zip(threads, batches, strict=True):
            thread.batch(issues, line=28)
    for thread in threads:
        thread.issue("0", "all_reduce", wait="host", line=40)
    groups = {"0": world(size), "1": world(size, "pipeline")}
    return program("interleaved", groups, [[thread] for thread in threads])


def _needs(unit: Unit, stages: int) -> list[Unit]:
    way, number, stage = unit
    if way == "f":
        return [("f", number, stage - 1)] if stage else []
    return [("f", number, stage), *([("b", number, stage + 1)] if stage + 1 < stages else [])]


def layout_3d(random: Random) -> Program:
    """Tensor-parallel pairs, two pipeline stages, data-parallel replicas, as Megatron lays out."""
    tensor, replicas, stages, micro = 2, random.randint(1, 2), 2, random.randint(2, 3)
    size = tensor * replicas * stages
    places = [(r % tensor, r // tensor % replicas, r // tensor // replicas) for r in range(size)]
    groups = {"0": world(size)}
    mine: list[dict[str, str]] = [{} for _ in range(size)]
    for kind, along in (("tensor", 0), ("data", 1), ("pipe", 2)):
        lines: dict[tuple[int, ...], list[int]] = {}
        for rank, place in enumerate(places):
            lines.setdefault((*place[:along], *place[along + 1 :]), []).append(rank)
        for members in lines.values():
            name = str(len(groups))
            groups[name] = Group(tuple(members), f"{kind}_parallel")
            for rank in members:
                mine[rank][kind] = name
    threads = [Thread(random) for _ in range(size)]
    for rank, thread in enumerate(threads):
        last = places[rank][2] == stages - 1
        peer = rank - size // 2 if last else rank + size // 2
        pipe, pair = mine[rank]["pipe"], mine[rank]["tensor"]

        def passes(line: int, thread: Thread = thread, pair: str = pair) -> None:
            thread.compute()
            thread.issue(pair, "all_reduce", line=line)
            thread.issue(pair, "all_gather", numel=16, line=line + 1)

        for _ in range(micro):
            if last:
                thread.batch([Issue(pipe, "recv", peer=peer)], line=20)
            passes(10)
            if not last:
                thread.batch([Issue(pipe, "send", peer=peer)], line=22)
        for _ in range(micro):
            if not last:
                thread.batch([Issue(pipe, "recv", peer=peer)], line=30)
            passes(15)
            if last:
                thread.batch([Issue(pipe, "send", peer=peer)], line=32)
        if replicas > 1:
            thread.issue(mine[rank]["data"], "all_reduce", numel=512, line=50)
        thread.issue("0", "all_reduce", numel=1, wait="host", line=52)
    return program("layout_3d", groups, [[thread] for thread in threads])
