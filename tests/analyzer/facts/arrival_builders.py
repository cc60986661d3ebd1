"""Jobs as their ranks' dumps and progress files would show them, moment by moment.

A job is simulated: each rank works for a while, enters the next operation, and
leaves it when the last member has entered.  Times are milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from hanglab.analyzer.facts.case_facts import CaseFacts, RankView
from hanglab.analyzer.flight_recorder.columns import (
    Arguments,
    Entries,
    Frame,
    GroupName,
    Operation,
    RankDump,
    State,
)
from hanglab.analyzer.graph.wait_for_graph import WaitForGraph
from hanglab.recorder.case.progress_records import (
    OperationCall,
    Progress,
    SectionEvent,
    SectionTotal,
)

#: Wall time at which jobs begin, nanoseconds.
START = 1_800_000_000_000_000_000


@dataclass
class Simulated:
    """Operations of each rank: (group, number, entered, left) in milliseconds."""

    members: Mapping[str, Sequence[int]]
    now: dict[int, float]
    calls: dict[int, list[tuple[str, int, float, float]]] = field(default_factory=dict)
    talks: dict[int, list[tuple[str, int, float, float]]] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    #: When each rank's optimizer stepped; with any, all operations are of backward passes.
    updates: dict[int, list[float]] = field(default_factory=dict)

    @classmethod
    def of(cls, members: Mapping[str, Sequence[int]]) -> Simulated:
        ranks = sorted({rank for group in members.values() for rank in group})
        return cls(members, dict.fromkeys(ranks, 0.0))

    def work(self, ms: Callable[[int], float]) -> None:
        for rank in self.now:
            self.now[rank] += ms(rank)

    def meet(self, group: str) -> None:
        """All members wait for each other; 0.2 ms of transfer."""
        self.wait(self.enter(group))

    def enter(self, group: str) -> tuple[str, int, dict[int, float]]:
        """Asynchronously."""
        number = self.numbers[group] = self.numbers.get(group, 0) + 1
        return group, number, {rank: self.now[rank] for rank in self.members[group]}

    def wait(self, *entered: tuple[str, int, dict[int, float]]) -> None:
        for group, number, times in entered:
            done = max(times.values()) + 0.2
            for rank, at in times.items():
                self.now[rank] = max(self.now[rank], done)
                self.calls.setdefault(rank, []).append((group, number, at, self.now[rank]))

    def update(self) -> None:
        for rank, now in self.now.items():
            self.updates.setdefault(rank, []).append(now)

    def send(self, source: int, to: int) -> None:
        begun = {rank: self.now[rank] for rank in (source, to)}
        done = max(begun.values()) + 0.1
        for rank, method in ((source, "send"), (to, "recv")):
            self.talks.setdefault(rank, []).append((method, 0, begun[rank], done))
            self.now[rank] = done

    def evidence(
        self,
        *,
        waits: bool = True,
        hosts: Mapping[int, str] | None = None,
        clock: Callable[[str, float], float] = lambda host, ms: ms,
    ) -> CaseFacts:
        """``clock(host, ms)`` is what the host's clock shows at ``ms``; without ``waits`` the
        boundary saw no wait, as with DistributedDataParallel."""
        views, dumps = {}, {}
        for rank, calls in self.calls.items():
            host = (hosts or {}).get(rank, "one")

            def at(ms: float, host: str = host) -> int:
                return START + round(clock(host, ms) * 1e6)

            names = [name for name, members in self.members.items() if rank in members]
            dumps[rank] = _dump(rank, calls, names, self.members, at)
            updates = self.updates.get(rank, [])
            if updates and (entries := dumps[rank].entries) is not None:
                entries.stack[:] = 0
                entries.stacks.append((Frame("backward", "/v/torch/autograd/graph.py", 1),))
            crossings = [
                OperationCall(
                    index=i,
                    method="allreduce",
                    group=group,
                    entered_ns=at(entered),
                    returned_ns=at(entered) + 1000,
                    wait_entered_ns=max(at(entered) + 2000, at(left) - 150_000),
                    wait_returned_ns=at(left),
                    completed=True,
                    group_seq=number - 1,
                )
                for i, (group, number, entered, left) in enumerate(calls)
                if waits
            ] + [
                OperationCall(
                    index=len(calls) + i,
                    method=method,
                    group="0",
                    entered_ns=at(begun),
                    returned_ns=at(done),
                )
                for i, (method, _, begun, done) in enumerate(self.talks.get(rank, []))
            ]
            crossings.sort(key=lambda crossing: crossing.entered_ns)
            views[rank] = RankView(
                rank=rank,
                host=host,
                progress=Progress(
                    pid=rank,
                    rank=rank,
                    wall_minus_mono_ns=0,
                    heartbeat_mono_ns=0,
                    step=-1,
                    step_started_ns=None,
                    operations_total=len(crossings),
                    operations=crossings,
                    section_totals=[SectionTotal("step", "update", len(updates), 1, 1)],
                    section_events=[
                        SectionEvent("step", at(now), 1000, 1000, -1) for now in updates
                    ],
                ),
            )
        members = tuple(sorted(views))
        graph = WaitForGraph(ranks=members, expected=members)
        return CaseFacts(graph=graph, ranks=views, dumps=dumps, case=True)


def _dump(
    rank: int,
    calls: Sequence[tuple[str, int, float, float]],
    names: list[str],
    members: Mapping[str, Sequence[int]],
    at: Callable[[float], int],
) -> RankDump:
    n = len(calls)
    absent = np.full(n, -1, dtype=np.int64)
    numbers = np.array([number for _, number, _, _ in calls])
    entries = Entries(
        record_id=np.arange(n),
        pg_id=absent,
        group=np.array([names.index(group) for group, *_ in calls], dtype=np.int32),
        seq=numbers,
        p2p_seq=absent,
        op_id=numbers,
        operation=np.zeros(n, dtype=np.int32),
        argument=np.zeros(n, dtype=np.int32),
        stack=absent.astype(np.int32),
        state=np.full(n, int(State.SCHEDULED), dtype=np.int8),
        retired=np.ones(n, dtype=np.bool_),
        is_p2p=np.zeros(n, dtype=np.bool_),
        created_ns=np.array([at(entered) for _, _, entered, _ in calls]),
        started_ns=absent,
        completed_ns=absent,
        timeout_ms=absent,
        duration_ms=np.full(n, np.nan),
        thread=np.zeros(n, dtype=np.int32),
        group_names=[GroupName(name, name) for name in names],
        operations=[Operation("gloo", "all_reduce")],
        arguments=[Arguments()],
    )
    return RankDump(
        rank=rank,
        source="simulated",
        members={name: tuple(members[name]) for name in names},
        entries=entries,
    )
