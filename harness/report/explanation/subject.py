"""The subject of an explanation: a verdict, and the evidence it was concluded from."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from hanglab.analyzer.branching.source_code import Sources
from hanglab.analyzer.code_owners import FrameLike
from hanglab.analyzer.decision import Fallen
from hanglab.analyzer.facts.case_facts import CaseFacts, RankView
from hanglab.analyzer.graph.wait_for_graph import Sink, WaitKind
from hanglab.analyzer.hypotheses.implicated import waiting_for
from hanglab.analyzer.matching.calls import Call, Divergence
from hanglab.analyzer.plain_text import shown
from hanglab.analyzer.verdict import Status, Verdict
from hanglab.analyzer.wording import name_ranks
from hanglab.harness.report.explanation.parts import ProcessPlace
from hanglab.recorder.case import evidence_files as files

#: Ends of texts in which a place is still to come.
_OPEN_END = re.compile(r"\b(?:is|are|was|were|stands?|stood|waits?|runs?)$")
#: Characters of a list of ranks that is written out.
_LONG_NAME = 60


@dataclass
class Subject:
    """A verdict with its evidence; ``facts`` is None where only the verdict is at hand."""

    verdict: Verdict
    facts: CaseFacts | None = None
    fallen: Sequence[Fallen] = ()
    #: True where its culprits are all who could be meant.
    undecided: bool = False
    #: True where the job is being ended, so that its processes can be asked no more.
    ending: bool = False
    #: The folder that was examined, as people named it.
    folder: Path | None = None

    @cached_property
    def culprits(self) -> tuple[int, ...]:
        return tuple(self.verdict.culprits)

    @cached_property
    def waiting(self) -> tuple[int, ...]:
        """Victims that the evidence shows to wait; all of them where it shows nobody."""
        victims = set(self.verdict.victims)
        if self.facts is None or self.verdict.status is not Status.HUNG:
            return tuple(sorted(victims))
        graph = self.facts.graph
        seen = {wait.call.rank for wait in graph.waits} | set(graph.host_waits)
        ended = {rank for rank, view in self.facts.ranks.items() if view.ended is not None}
        return tuple(sorted(victims & seen or victims - ended))

    @cached_property
    def waiting_for_culprits(self) -> tuple[int, ...]:
        """Those who wait, without those of whom all that they wait for is somebody else.

        There may be a second fault.
        """
        if self.facts is None or self.verdict.status is not Status.HUNG or not self.culprits:
            return self.waiting
        graph = self.facts.graph
        reached = {*self.culprits, *waiting_for(graph, self.culprits)}
        elsewhere = {
            one.call.rank
            for one in graph.waits
            if (one.on and reached.isdisjoint(one.on))
            or (one.kind is WaitKind.STALLED and reached.isdisjoint(one.call.group.members))
        }
        kept = tuple(rank for rank in self.waiting if rank in reached or rank not in elsewhere)
        return kept or self.waiting

    @cached_property
    def waited_s(self) -> float | None:
        """Seconds for which all who wait have waited at least; None where nothing tells."""
        if self.facts is None or self.verdict.status is not Status.HUNG:
            return None
        if not self.facts.case:
            return self.facts.graph.idle_s or None
        views = (self.facts.ranks.get(rank) for rank in self.waiting)
        quiet = [v.movement.quiet_s for v in views if v is not None and v.movement is not None]
        trigger = self.facts.job.trigger if self.facts.job is not None else None
        if not quiet and self.facts.stuck and trigger is not None:
            return trigger.quiet_s or None
        return min(quiet, default=None)

    @cached_property
    def world_size(self) -> int:
        inputs = self.verdict.inputs
        return inputs.ranks + len(inputs.missing_ranks)

    def view(self, rank: int) -> RankView | None:
        return self.facts.ranks.get(rank) if self.facts is not None else None

    def process(self, rank: int) -> ProcessPlace:
        view = self.view(rank)
        if view is None:
            return ProcessPlace(rank)
        job = self.facts.job if self.facts is not None else None
        over = job is not None and (job.ended is not None or job.ended_by_recorder)
        over = over or self.ending
        return ProcessPlace(rank, shown(view.host), view.pid, over or view.exit is not None)

    @cached_property
    def hosts(self) -> tuple[str, ...]:
        if self.facts is None:
            return ()
        return tuple(sorted({view.host for view in self.facts.ranks.values() if view.host}))

    @cached_property
    def divergence(self) -> Divergence | None:
        """The difference that the verdict is about."""
        ref = self.verdict.collective
        if self.facts is None or ref is None:
            return None
        graph = self.facts.graph
        for one in (*graph.divergences, *graph.silent_mismatches):
            named = {*one.deviating, *one.candidates}
            if (
                one.group.name == ref.group_id
                and one.seq == ref.seq
                and set(self.culprits) <= named
            ):
                return one
        return None

    @cached_property
    def awaited(self) -> Call | None:
        """The operation in which somebody waits for a culprit, as the one who waits made it."""
        if self.facts is None:
            return None
        culprits = set(self.culprits)
        for wait in self.facts.graph.waits:
            if wait.call.rank not in culprits and culprits.intersection(wait.on):
                return wait.call
        return None

    @cached_property
    def all_wait_there(self) -> bool:
        """True where nobody of those who wait is seen to wait in another operation."""
        if self.facts is None or self.awaited is None:
            return True
        there = (self.awaited.group, self.awaited.seq, self.awaited.op)
        calls: dict[int, set[object]] = {}
        for wait in self.facts.graph.waits:
            call = wait.call
            calls.setdefault(call.rank, set()).add((call.group, call.seq, call.op))
        return all(there in calls[rank] for rank in self.waiting if rank in calls)

    @cached_property
    def lone_message(self) -> Call | None:
        """The send or receive whose other half a culprit did not issue."""
        if self.facts is None:
            return None
        for one in self.facts.graph.unmatched:
            if one.call.seq is None and {one.call.rank, one.call.peer} & set(self.culprits):
                # Of two that miss each other, that of the one who did what was due.
                wrong = one.missing and one.call.rank in self.culprits
                return one.instead if wrong and len(self.culprits) == 1 else one.call
        awaited = self.awaited
        return awaited if awaited is not None and awaited.seq is None else None

    @cached_property
    def lone_sink(self) -> Sink | None:
        """The graph's word on the one culprit, where others wait for it."""
        if self.facts is None or len(self.culprits) != 1:
            return None
        return self.facts.sink(self.culprits[0])

    @cached_property
    def is_outside(self) -> bool:
        """True unless a culprit has an operation open itself."""
        if self.facts is None:
            return True
        return not any(self.facts.graph.unfinished.get(rank) for rank in self.culprits)

    def call_of(self, rank: int) -> Call | None:
        """The rank's call that the verdict is about: at the difference, or where it waits.

        That of the verdict's line, where the rank has ended the one at which it differed.
        """
        waiting = self.facts.blocked(rank) if self.facts is not None else None
        if self.divergence is None or rank not in self.divergence.calls:
            return waiting
        call, place = self.divergence.calls[rank], self.verdict.location
        if waiting is not None and place is not None and place.rank == rank:
            lines = [{(f.file, f.line) for f in one.stack} for one in (call, waiting)]
            if (place.file, place.line) in lines[1] - lines[0]:
                return waiting
        return call

    @cached_property
    def sources(self) -> Sources:
        """Functions whose source the Case holds."""
        if self.facts is None:
            return Sources(())
        return Sources(
            one for host in self.facts.hosts.values() for one in host.read(files.SOURCES)
        )


def short(path: str) -> str:
    """Last part of a path, as people know their files."""
    return shown(path.replace("\\", "/").rsplit("/", 1)[-1])


def ranks_name(ranks: Sequence[int]) -> str:
    """``ranks 0-3 and 5``; of many with gaps how many they are, and from which to which."""
    name = name_ranks(ranks)
    if len(name) <= _LONG_NAME:
        return name
    return f"{len(set(ranks)):,} ranks from {min(ranks)} to {max(ranks)}"


def line_name(location: FrameLike) -> str:
    """``train.py:88 (encode)``."""
    return f"{short(location.file)}:{location.line} ({shown(location.function)})"


def without_line(detail: str, line: str) -> str:
    """A text of the analyzer without the line that it ends in, where that is said elsewhere.

    It stays where the sentence ends in its verb without it.
    """
    left = detail.removesuffix(f" at {line}")
    return detail if not left or _OPEN_END.search(left) else left
