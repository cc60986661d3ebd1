"""Communication programs of threads, and the shapes that they take in training jobs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random


@dataclass(frozen=True)
class Issue:
    """An operation that a thread hands to a communicator; ``peer`` is a rank of the job."""

    group: str
    kind: str
    numel: int = 64
    peer: int | None = None
    #: Name of its Work within the thread, for a later :class:`Wait`.
    work: str = ""
    line: int = 10


@dataclass(frozen=True)
class Wait:
    """The thread's later operations follow that Work; with ``host`` the thread itself blocks."""

    work: str
    host: bool = False


@dataclass(frozen=True)
class Compute:
    ms: float


Step = Issue | Wait | Compute
Threads = list[list[Step]]


@dataclass
class Program:
    shape: str
    groups: dict[str, tuple[int, ...]]
    #: For each rank its threads, for each thread its steps.
    ranks: list[Threads]
    descriptions: dict[str, str] = field(default_factory=dict)

    def with_thread(self, rank: int, thread: int, steps: list[Step]) -> Program:
        ranks = [list(threads) for threads in self.ranks]
        ranks[rank][thread] = steps
        return replace(self, ranks=ranks)


def ddp(random: Random) -> Program:
    """Buckets that are reduced while the backward pass goes on, and a join at the step's end."""
    size, buckets, steps = random.randint(3, 8), random.randint(1, 4), random.randint(2, 5)
    ranks: list[Threads] = []
    for _ in range(size):
        body: list[Step] = []
        for step in range(steps):
            for bucket in range(buckets):
                body += [Compute(random.uniform(0.5, 2))]
                work = f"{step}.{bucket}"
                body += [Issue("0", "all_reduce", 64 << bucket, work=work, line=10)]
            body += [Wait(f"{step}.{bucket}") for bucket in range(buckets)]
            body += [Issue("0", "broadcast", 4, work=f"{step}.b", line=14)]
            body += [Wait(f"{step}.b", host=random.random() < 0.5)]
        ranks.append([body])
    return Program("ddp", {"0": tuple(range(size))}, ranks)


def checkpoint_thread(random: Random) -> Program:
    """DDP whose ranks save from a second thread, on a group of that thread's own."""
    base = ddp(random)
    size, rounds = len(base.ranks), random.randint(1, 3)
    for threads in base.ranks:
        body: list[Step] = []
        for number in range(rounds):
            body += [Compute(random.uniform(1, 12))]
            body += [Issue("1", "all_gather", 8, work=f"g{number}", line=30)]
            body += [Wait(f"g{number}", host=True)]
        threads.append(body)
    return replace(base, shape="checkpoint_thread", groups={**base.groups, "1": tuple(range(size))})


def pipeline(random: Random) -> Program:
    """All forward, then all backward, receives posted where they are needed."""
    return _stages(random, "pipeline", early=False, separate=False)


def overlap(random: Random) -> Program:
    """1F1B, receives posted one microbatch early, forward and backward on groups of their own."""
    return _stages(random, "overlap", early=True, separate=True)


def early_receive(random: Random) -> Program:
    """Receives posted early and waited for late, on one group."""
    return _stages(random, "early_receive", early=True, separate=False)


def _stages(random: Random, shape: str, *, early: bool, separate: bool) -> Program:
    size, micro = random.randint(2, 5), random.randint(3, 7)
    forward, backward = ("1", "2") if separate else ("1", "1")
    ranks: list[Threads] = []
    for stage in range(size):
        # On one communicator a pair has one stream: only all forward, then all backward is legal.
        warm = min(micro, size - stage) if separate else micro
        order = [("f", number) for number in range(warm)]
        for number in range(warm, micro):
            order += [("b", number - warm), ("f", number)]
        order += [("b", number) for number in range(micro - warm, micro)]
        arrivals: list[tuple[str, Issue]] = []
        for way, number in order:
            source = stage - 1 if way == "f" else stage + 1
            name = f"r{way}{number}"
            group = forward if way == "f" else backward
            if 0 <= source < size:
                arrivals.append((name, Issue(group, "recv", peer=source, work=name, line=20)))
        body: list[Step] = []
        posted = 0
        for way, number in order:
            name = f"r{way}{number}"
            index = next((i for i, one in enumerate(arrivals) if one[0] == name), None)
            if index is not None:
                following = arrivals[index + 1 : index + 2]
                same_way = any(one[0][1] == way for one in following)
                through = index + 1 + (early and (separate or same_way))
                body += [issue for _, issue in arrivals[posted:through]]
                posted = max(posted, min(through, len(arrivals)))
                body.append(Wait(name, host=random.random() < 0.3))
            body.append(Compute(random.uniform(0.5, 2)))
            target = stage + 1 if way == "f" else stage - 1
            if 0 <= target < size:
                group = forward if way == "f" else backward
                line = 22 if way == "f" else 23
                body.append(Issue(group, "send", peer=target, work=f"s{way}{number}", line=line))
        body += [Issue("0", "all_reduce", work="end", line=40), Wait("end", host=True)]
        ranks.append([body])
    members = tuple(range(size))
    return Program(shape, dict.fromkeys({"0", forward, backward}, members), ranks)


def tensor_and_data(random: Random) -> Program:
    """Tensor-parallel pairs and data-parallel groups across them, one order everywhere."""
    replicas, steps = random.randint(2, 4), random.randint(2, 5)
    size = 2 * replicas
    groups: dict[str, tuple[int, ...]] = {f"t{i}": (2 * i, 2 * i + 1) for i in range(replicas)}
    groups |= {f"d{i}": tuple(range(i, size, 2)) for i in range(2)}
    ranks: list[Threads] = []
    for rank in range(size):
        body: list[Step] = []
        for step in range(steps):
            for group, line in ((f"t{rank // 2}", 10), (f"d{rank % 2}", 12)):
                body += [Compute(random.uniform(0.5, 2))]
                body += [Issue(group, "all_reduce", work=f"{step}{group}", line=line)]
                body += [Wait(f"{step}{group}", host=random.random() < 0.5)]
        ranks.append([body])
    return Program("tensor_and_data", groups, ranks)


SHAPES: tuple[Callable[[Random], Program], ...] = (
    ddp, checkpoint_thread, pipeline, overlap, early_receive, tensor_and_data,
)  # fmt: skip
