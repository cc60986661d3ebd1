"""Holds proposals against a simulation: a fault that does not leave what was found falls.

The check takes confidence away, adds alternatives, and decides between candidates
of which one alone leaves the evidence.  It never names a rank that was not named, and another
cause only where other arguments do not leave it, and what shifts a rank's calls does.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np

from hanglab.analyzer.catalogue import Stage
from hanglab.analyzer.causes.thresholds import LISTED_ROWS
from hanglab.analyzer.facts.call_wording import line_of, location
from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.facts.waiting_ranks import current_call, cycles_of, waiting_ranks
from hanglab.analyzer.flight_recorder.columns import Entries, State
from hanglab.analyzer.graph.wait_for_graph import Unmatched, WaitForGraph
from hanglab.analyzer.hypotheses.frontier import Frontier
from hanglab.analyzer.hypotheses.implicated import representatives, waiting_for
from hanglab.analyzer.hypotheses.last_operations import LastOperations, NoProgram, last_operations
from hanglab.analyzer.hypotheses.repairs import CandidateFault, undo
from hanglab.analyzer.hypotheses.thresholds import (
    ALTERNATIVE,
    NOT_REPRODUCED,
    TIE_DECIDED,
    TRIED_NUMBERS,
)
from hanglab.analyzer.matching.calls import Divergence
from hanglab.analyzer.program.program import Action
from hanglab.analyzer.program.simulation import agree
from hanglab.analyzer.proposal import Proposal
from hanglab.analyzer.strengths import CANDIDATES
from hanglab.analyzer.verdict import Cause, Evidence, Finding, Status
from hanglab.analyzer.wording import UNTOLD, name_ranks

SOURCE = "simulation"

_Fault = CandidateFault
#: The faults that a cause at a difference may be.
_DIFFERENCES: Mapping[Cause, tuple[CandidateFault, ...]] = {
    Cause.SKIPPED_COLLECTIVE: (_Fault.LEFT_OUT,),
    Cause.COLLECTIVE_MISMATCH: (_Fault.CHANGED, _Fault.ADDED, _Fault.REGROUPED),
    # A round of a loop is all calls of it; where it is one, that is left out, or one too many.
    Cause.UNEVEN_INPUTS: (_Fault.LEFT_OUT, _Fault.ADDED),
    Cause.SIZE_MISMATCH: (_Fault.CHANGED,),
    Cause.DTYPE_MISMATCH: (_Fault.CHANGED,),
    Cause.ROOT_MISMATCH: (_Fault.CHANGED,),
    Cause.REDUCTION_MISMATCH: (_Fault.CHANGED,),
}
#: Differences in arguments, which calls have that meet and were not meant to.
_ARGUMENTS = frozenset(
    {
        Cause.SIZE_MISMATCH,
        Cause.SPLIT_MISMATCH,
        Cause.DTYPE_MISMATCH,
        Cause.ROOT_MISMATCH,
        Cause.REDUCTION_MISMATCH,
    }
)
#: Faults by which such calls come to meet.
_SHIFTING = frozenset({_Fault.LEFT_OUT, _Fault.ADDED, _Fault.REGROUPED})
#: Causes that only what follows tells apart.
_LABELS = frozenset({Cause.SKIPPED_COLLECTIVE, Cause.COLLECTIVE_MISMATCH})
#: The faults that a cause of a wait may be, where nobody differs.
_WAITS: Mapping[Cause, tuple[CandidateFault, ...]] = {
    Cause.GROUP_ORDER: (_Fault.LATE,),
    Cause.COLLECTIVE_MISMATCH: (_Fault.LATE, _Fault.ADDED),
    Cause.SKIPPED_COLLECTIVE: (_Fault.LATE, _Fault.LEFT_OUT),
    Cause.P2P_UNMATCHED: (_Fault.LATE, _Fault.LEFT_OUT, _Fault.ADDED, _Fault.MISDIRECTED),
}
#: All that a rank may have done, asked before it is said that it did none of it.
_ANY = tuple(fault for fault in _Fault if fault is not _Fault.DEVICE_STOPPED)
_STAGES = frozenset({Stage.DIVERGENCE, Stage.CYCLE, Stage.OUTSIDE})
_WORDS = {
    _Fault.LATE: "missing from what the others wait in",
    _Fault.LEFT_OUT: "leaving the operation out",
    _Fault.ADDED: "having one operation too many",
    _Fault.CHANGED: "calling it otherwise than its peers",
    _Fault.REGROUPED: "calling on a group what it was to call on another one",
    _Fault.MISDIRECTED: "sending to, or receiving from, another rank than the one that waits",
    _Fault.DEVICE_STOPPED: "stopping on its device",
}


def check_hypotheses(facts: CaseFacts, proposals: Iterable[Proposal]) -> list[Proposal]:
    """The proposals, those about a hang held against the Program that the dumps show."""
    checked = (_checked(facts, proposal) for proposal in proposals)
    return [one for one in checked if one is not None]


def _checked(facts: CaseFacts, proposal: Proposal) -> Proposal | None:
    """The proposal with what the simulation says of it; None where nothing speaks for it then."""
    finding = proposal.finding
    cause = finding.cause
    if (
        proposal.stage not in _STAGES
        or finding.status is not Status.HUNG
        or cause is None
        or not finding.culprits
        or not facts.graph.waits
        # A group that was not created is no operation that could be left out.
        or cause is Cause.GROUP_CREATION
    ):
        return proposal
    if any(departure.tied for departure in facts.graph.departures):
        return proposal  # What each would have done otherwise leaves what the other has done.
    if any(divergence.thread_turns for divergence in facts.graph.divergences):
        return proposal  # In which turns threads come is not simulated.
    parted = any(cycle.parted for cycle in cycles_of(facts.graph, finding.culprits))
    if parted or any(divergence.contradicted for divergence in facts.graph.divergences):
        return proposal  # What several may have done alike is no fault of one.
    of_streams = any(cycle.streams for cycle in cycles_of(facts.graph, finding.culprits))
    if of_streams or any(departure.swapped for departure in facts.graph.departures):
        return _with_evidence(
            proposal,
            "No simulation was possible: which streams wait for which no buffer tells.",
        )
    try:
        check = _SimulatedCheck(facts.graph, proposal)
        try:
            return check.result()
        except _Refuted as refuted:
            # No buffer tells which streams of a device wait for which.
            found = check.on_independent_streams_or(refuted)
            falls = check.is_of_idle_ranks() or proposal.finding.cause is Cause.P2P_DEADLOCK
            # That a rank left an order of its own is no more than a guess of what it was to do.
            falls = falls or any(departure.own for departure in facts.graph.departures)
            return None if found is refuted.proposal and falls else found
    except NoProgram as reason:
        return _with_evidence(proposal, f"No simulation was possible: {reason}.")
    except Exception as error:
        # Dumps that contradict themselves give Programs that nobody thought of.
        return _with_evidence(
            proposal, f"No simulation was possible: it failed ({type(error).__name__})."
        )


def _with_evidence(
    proposal: Proposal,
    detail: str,
    *,
    alternatives: Sequence[tuple[Cause, list[int], float]] = (),
    **changed: object,
) -> Proposal:
    evidence = [*proposal.finding.evidence, Evidence(SOURCE, None, detail)]
    finding = msgspec.structs.replace(proposal.finding, evidence=evidence, **changed)
    others = [*proposal.alternatives, *alternatives]
    return replace(proposal, finding=finding, alternatives=others)


class _Refuted(Exception):
    """No fault of the culprits leaves what was found; ``proposal`` says so."""

    def __init__(self, proposal: Proposal) -> None:
        super().__init__()
        self.proposal = proposal


@dataclass
class Tested:
    """Answer of the simulation to candidate faults."""

    #: Those that leave the evidence that was found.
    reproduced: list[CandidateFault]
    #: How many could not be simulated.
    untested: int


class _SimulatedCheck:
    def __init__(self, graph: WaitForGraph, proposal: Proposal) -> None:
        self._graph = graph
        self._proposal = proposal
        finding = proposal.finding
        assert finding.cause is not None
        self._cause: Cause = finding.cause
        if any(not message.finished for message in graph.mismatched_messages):
            raise NoProgram("messages are simulated without their sizes and dtypes")
        if any(one.sender is not None for one in graph.unmatched):
            raise NoProgram("what was sent too often to who takes from any rank has ended")
        self._culprits = finding.culprits
        divergence = self._divergence()
        self._label_is_told = divergence is not None and divergence.told_by_steps
        self._faults: tuple[CandidateFault, ...] = (
            _DIFFERENCES.get(self._cause, (_Fault.LATE,))
            if divergence is not None
            else _WAITS.get(self._cause, (_Fault.LATE,))
        )
        waiters = waiting_for(graph, self._culprits)
        if not waiters:
            # Nobody waits for them, as far as the dumps tell: they have to explain who does.
            waiters = {wait.call.rank for wait in graph.waits} - set(self._culprits)
        for one in self._differing():
            waiters |= waiting_ranks(graph, one.group) - set(self._culprits)
        # Whoever waits for them on his host does his part once they do theirs.
        late = {*self._culprits, *graph.held_on_hosts(self._culprits)}
        ranks = representatives(graph, sorted(late), waiters)
        since = {divergence.group: divergence.seq} if divergence is not None else {}
        self._last: LastOperations = last_operations(graph, ranks, {*waiters, *late}, since)
        self._at = None
        if divergence is not None:
            self._at = self._last.places[divergence.group], divergence.seq
        stopped = self._stopped_devices()
        if stopped:
            self._faults = (_Fault.DEVICE_STOPPED,)
        self._stopped = stopped
        self._frontier = Frontier(self._last, stopped)

    def on_independent_streams_or(self, refuted: _Refuted) -> Proposal:
        """The answer if streams do not wait for each other; the other one if that is none."""
        if self._last.backend == "nccl":
            self._last = self._last.on_independent_streams
            self._frontier = Frontier(self._last, self._stopped)
            with suppress(_Refuted, NoProgram):
                return self.result()
        return refuted.proposal

    def is_of_idle_ranks(self) -> bool:
        """True if ranks are missed that have nothing open, beside what all have entered elsewhere.

        They may wait for its members in what leaves no entry.
        """
        if self._cause is not Cause.MISSING_RANK:
            return False
        idle = not any(self._graph.unfinished.get(rank) for rank in self._culprits)
        calls = [wait.call for wait in self._graph.stalled if wait.call.seq is not None]
        # Who is alone in what it has entered may be in a group of which nothing else is known.
        shared = [{*call.group.members} for call in calls if len(call.group.members) > 1]
        return idle and any(members.isdisjoint(self._culprits) for members in shared)

    def _divergence(self) -> Divergence | None:
        return next(self._differing(), None) if self._cause in _DIFFERENCES else None

    def _differing(self) -> Iterator[Divergence]:
        """Differences in which a culprit has a part."""
        named = set(self._culprits)
        return (d for d in self._graph.divergences if named & {*d.deviating, *d.candidates})

    def _stopped_devices(self) -> dict[int, int]:
        """Operation that each culprit is in whose device is said to have stopped."""
        if self._cause in _DIFFERENCES or self._cause in _WAITS:
            return {}
        stopped = {sink.rank for sink in self._graph.sinks if sink.stopped_device}
        found = {}
        for rank in stopped.intersection(self._culprits):
            place = self._last.ranks.index(rank)
            steps = enumerate(self._last.steps[place])
            at = next((index for index, step in steps if not step.finished), None)
            if at is not None:
                found[place] = at
        return found

    def result(self) -> Proposal:
        """The proposal with what the simulation says of it.  Raises NoProgram."""
        if not self._frontier.is_that_of_the_dumps():
            # Gloo does not tell which messages have ended.
            if self._cause is Cause.P2P_DEADLOCK and self._last.backend == "nccl":
                raise _Refuted(self._proposal)
            raise NoProgram("simulated, the operations of the dumps do not stop where the job did")
        if self._differ(besides=self._culprits):
            raise NoProgram("calls of other ranks differ as well, and one fault is tried at a time")
        finding = self._proposal.finding
        if self._cause is Cause.P2P_DEADLOCK:
            return self._freed(finding)
        if finding.confidence <= CANDIDATES and len(self._culprits) > 1:
            return self._tie(finding)
        return self._certain(finding)

    def _freed(self, finding: Finding) -> Proposal:
        """The proposal without those of a ring whom nothing that they may have done lets go on.

        Whoever of a ring goes first frees all, as nobody did anything but what stands there.
        """
        tested = {rank: self._test(_ANY, [rank]) for rank in self._culprits}
        keys = _left(tested)
        told = (
            f"Simulated: what {name_ranks(self._culprits)} issued, in that order, stops where "
            "the dumps do"
        )
        if not keys or keys == list(self._culprits):
            return _with_evidence(self._proposal, f"{told}.")
        fallen = sorted({*self._culprits} - {*keys})
        return _with_evidence(
            self._proposal,
            f"{told}; had {name_ranks(keys)} done otherwise, all would go on, and whatever "
            f"{name_ranks(fallen)} did, they would not.",
            summary=(
                f"{_without_untold(finding.summary)}; simulated, {name_ranks(keys)} alone could "
                "have let all go on."
            ),
            **self._without(finding, fallen, keys),
        )

    def _without(
        self, finding: Finding, fallen: Sequence[int], left: Sequence[int]
    ) -> dict[str, Any]:
        """Fields of a finding of which some culprits fall: the place is one of those who stay."""
        return {
            "culprits": list(left),
            "victims": sorted({*finding.victims, *fallen}),
            "location": location(current_call(self._graph, left[0])) or finding.location,
        }

    def _differ(self, *, besides: Collection[int]) -> bool:
        """True if ranks ``besides`` some do not agree with each other in a call."""
        calls = defaultdict[tuple[int, int], list[Action]](list)
        for rank, steps in zip(self._last.ranks, self._last.steps, strict=True):
            for step in steps:
                if step.number is not None and rank not in besides:
                    calls[step.action.group, step.number].append(step.action)
        return not all(map(agree, calls.values()))

    def _test(self, faults: Sequence[CandidateFault], culprits: Sequence[int]) -> Tested:
        """Simulate any of ``faults`` by ``culprits`` together."""
        last, places = self._last, self._places(culprits)
        held = self._places(sorted(self._graph.held_on_hosts(culprits)))
        free = {*self._frontier.held(), *places, *held}
        tested = Tested([], len(faults))
        for fault in faults:
            programs = [
                sound
                for at in self._places_of(fault)
                for freed in undo(last, _Fault.LATE, held, self._frontier, None)
                for sound in undo(freed, fault, places, self._frontier, at)
            ]
            tested.untested -= bool(programs)
            if any(Frontier(sound).goes_on(free) for sound in programs):
                tested.reproduced.append(fault)
        return tested

    def _places(self, ranks: Sequence[int]) -> list[int]:
        return [self._last.ranks.index(rank) for rank in ranks if rank in self._last.ranks]

    def _places_of(self, fault: CandidateFault) -> list[tuple[int, int] | None]:
        """Group and numbers at which a fault may be: what was left out may be the like before."""
        if self._at is None or fault is not _Fault.LEFT_OUT:
            return [self._at]
        group, number = self._at
        return [(group, one) for one in range(number, max(0, number - TRIED_NUMBERS), -1)]

    def _certain(self, finding: Finding) -> Proposal:
        who = name_ranks(self._culprits)
        tested = self._test(self._faults, self._culprits)
        if not tested.reproduced:
            # The label may be wrong; the ranks are, if nothing that they may have done fits.
            any_fault = self._test(_ANY, self._culprits)
            if not any_fault.reproduced:
                if tested.untested:
                    raise NoProgram("what should have been done instead is not in the dumps")
                raise _Refuted(self._refuted(finding))
            tested = any_fault
        others = self._other_labels(tested)
        label = self._label(finding, self._culprits, tested)
        besides = (
            f" So would {self._listed(others.values())}; nothing that follows tells them apart."
            if others
            else ""
        )
        alternatives = [(cause, self._culprits, ALTERNATIVE) for cause in others]
        waiter = self._lone_waiter()
        if waiter is not None and self._test((_Fault.ADDED,), [waiter]).reproduced:
            besides += f" So would rank {waiter} {_WORDS[_Fault.ADDED]}, as nobody else waits."
            alternatives.append((Cause.COLLECTIVE_MISMATCH, [waiter], ALTERNATIVE))
        return _with_evidence(
            self._proposal,
            f"Simulated: {who} {self._listed(tested.reproduced)} brings about what was found; "
            f"without it the others go on{self._once_all_come()}.{besides}",
            alternatives=alternatives,
            **label,
        )

    def _once_all_come(self) -> str:
        """Words for ranks that are away beside the culprits, in what these differ in."""
        away = {rank for one in self._differing() for rank in one.away}
        away -= {*self._culprits, *self._graph.progressing}
        come = "comes" if len(away) == 1 else "come"
        return f" once {name_ranks(sorted(away))} {come}, too" if away else ""

    def _label(self, finding: Finding, ranks: Sequence[int], *tested: Tested) -> dict[str, Any]:
        """Fields of the finding that change where other arguments do not leave what was found.

        Calls that meet under one number because one was left out, or is too many, have such, and
        so have calls of two groups: these are no fault of theirs.
        """
        left = [fault for one in tested for fault in one.reproduced]
        if self._cause not in _ARGUMENTS or not left or not _SHIFTING.issuperset(left):
            return {}
        cause = Cause.COLLECTIVE_MISMATCH
        who = f"{'' if len(ranks) == 1 else 'one of '}{name_ranks(ranks)}"
        told = f"that does not bring about what was found, but {who} {self._listed(left)} does"
        if set(left) == {_Fault.REGROUPED}:
            told = f"{who} called on a group what was to be called on another one"
        summary = f"{_without_untold(finding.summary)}; simulated, {told}."
        return {"cause": cause, "advice": cause.advice, "summary": summary}

    def _lone_waiter(self) -> int | None:
        """The one rank that waits for who is missing: there may be no need for it to wait."""
        if self._cause is not Cause.MISSING_RANK:
            return None
        waiters = {wait.call.rank for wait in self._graph.waits} - set(self._culprits)
        return waiters.pop() if len(waiters) == 1 else None

    def _refuted(self, finding: Finding) -> Proposal:
        return _with_evidence(
            self._proposal,
            f"Simulated: no fault of {name_ranks(self._culprits)} that is tried brings about what "
            "was found; without it the others would wait all the same.",
            confidence=min(finding.confidence, NOT_REPRODUCED),
        )

    def _other_labels(self, tested: Tested) -> dict[Cause, CandidateFault]:
        """Other causes by the same culprits, of which a fault leaves the evidence as well."""
        found: dict[Cause, CandidateFault] = {}
        if self._at is None or self._cause not in _LABELS or self._label_is_told:
            return found
        for cause in _LABELS - {self._cause}:
            for fault in self._test(_DIFFERENCES[cause], self._culprits).reproduced:
                if fault not in tested.reproduced:
                    found.setdefault(cause, fault)
        return found

    def _tie(self, finding: Finding) -> Proposal:
        tested = {
            # Where the others differ as well, no fault of one rank is all.
            rank: Tested([], 0) if self._differ(besides={rank}) else self._test(_ANY, [rank])
            for rank in self._culprits
        }
        left = _left(tested)
        fallen = [rank for rank in self._culprits if rank not in left]
        # A message on another group, or with another tag, is none of the faults that are tried, nor
        # are their sizes simulated.
        message = any(
            (one.counted or one.shifted or _is_on_another_group(one))
            and set(self._culprits) == {one.call.rank, one.call.peer}
            for one in self._graph.unmatched
        )
        guessed = self._at is None and not self._graph.uncounted.isdisjoint(self._last.ranks)
        against = self._against_decision(left, tested)
        doubtful = message or guessed or against or self._lack_messages_both_ways()
        if len(left) == 1 and tested[left[0]].reproduced and not doubtful:
            return self._decided(finding, left[0], tested[left[0]])
        words = [
            f"rank {rank} {self._listed([self._simplest(rank, one)])}"
            for rank, one in tested.items()
            if one.reproduced
        ][:LISTED_ROWS]
        if len(words) > 1:
            changed = self._label(finding, left, *tested.values())
            if fallen and not doubtful:
                changed |= self._without(finding, fallen, left)
            return _with_evidence(
                self._proposal,
                f"Simulated: each of these brings about what was found: {'; '.join(words)}. "
                "Nothing recorded tells them apart.",
                **changed,
            )
        if words and (message or against):
            untried = (
                "A message of another rank on another group, or with another tag, would as well, "
                "and is not tried."
            )
            return _with_evidence(
                self._proposal,
                f"Simulated: {words[0]} brings about what was found. {against or untried}",
            )
        if fallen and not left:
            raise _Refuted(
                _with_evidence(
                    self._proposal,
                    f"Simulated: no fault of one rank alone, of {name_ranks(self._culprits)}, "
                    "brings about what was found.",
                )
            )
        raise NoProgram("what the candidates should have done instead is not in the dumps")

    def _against_decision(self, left: Sequence[int], tested: Mapping[int, Tested]) -> str:
        """Words for what speaks against the one candidate that is left; "" if nothing does."""
        # Who calls on another group by mistake does so from a line of that one's.
        regrouped = len(left) == 1 and tested[left[0]].reproduced == [_Fault.REGROUPED]
        if regrouped and self._is_of_one_line():
            return "That all call it from one line of the program speaks against it."
        # Ranks that kept orders of their own before show none that one of them has left.
        if self._at is None and any(
            cycle.crossed_before and set(self._culprits) <= {*cycle.ranks}
            for cycle in self._graph.cycles
        ):
            return "That they kept orders of their own before, and went on, speaks against it."
        if len(left) == 1 and any(map(self._waits_in_threads, self._culprits)):
            return "In which turns their threads come is not simulated, which speaks against it."
        return ""

    def _lack_messages_both_ways(self) -> bool:
        """True if messages of two candidates to each other lack a half, either way.

        One of them then did a loop of messages once less, or more: no single call is all.
        """
        lookup = self._graph.lookup
        found = [lookup.entries(rank) for rank in self._culprits] if lookup is not None else []
        read = [entries for entries in found if entries is not None]
        if len(read) != 2 or not self._graph.uncounted.isdisjoint(self._culprits):
            return False
        return all(
            any(sent[way] != taken[way] for way in sent.keys() & taken.keys())
            for sent, taken in zip(
                (_count_messages(entries, "send") for entries in read),
                (_count_messages(entries, "recv") for entries in reversed(read)),
                strict=True,
            )
        )

    def _waits_in_threads(self, rank: int) -> bool:
        """True if several threads of a rank have something open: one order of them is simulated."""
        lookup = self._graph.lookup
        entries = lookup.entries(rank) if lookup is not None else None
        if entries is None:
            return False
        still_open = ~entries.retired & (entries.state != State.COMPLETED)
        return len(np.unique(entries.thread[still_open])) > 1

    def _listed(self, faults: Iterable[CandidateFault]) -> str:
        words = _WORDS
        if self._cause is Cause.GROUP_ORDER:
            words = {**_WORDS, _Fault.LATE: "calling something else before what the others wait in"}
        return " or ".join(dict.fromkeys(words[fault] for fault in faults))

    def _is_of_one_line(self) -> bool:
        """True if all calls that differ are of one line of the program."""
        found = self._divergence()
        lines = {line_of(call) for call in found.calls.values()} if found is not None else {""}
        return len(lines) == 1 and "" not in lines

    def _simplest(self, rank: int, tested: Tested) -> CandidateFault:
        """One of the faults that leave the evidence; of a rank in a message, one of messages."""
        steps = self._last.steps[self._last.ranks.index(rank)]
        first = next((step for step in steps if not step.finished), None)
        if first is not None and first.number is None:
            messages = [f for f in (_Fault.MISDIRECTED, _Fault.ADDED) if f in tested.reproduced]
            return (messages or tested.reproduced)[-1]
        return tested.reproduced[0]

    def _decided(self, finding: Finding, rank: int, tested: Tested) -> Proposal:
        """The proposal with the one candidate that is left."""
        fallen = [other for other in self._culprits if other != rank]
        summary = (
            f"{_without_untold(finding.summary)}; simulated, a fault of rank {rank} alone brings "
            "about what was found."
        )
        label = {"summary": summary} | self._label(finding, [rank], tested)
        return _with_evidence(
            self._proposal,
            f"Simulated: only rank {rank} {self._listed([self._simplest(rank, tested)])} brings "
            f"about what was found; a fault of {name_ranks(fallen)} does not.",
            culprits=[rank],
            victims=sorted({*finding.victims, *fallen}),
            location=location(current_call(self._graph, rank)) or finding.location,
            confidence=max(finding.confidence, TIE_DECIDED),
            **label,
        )


def _left(tested: Mapping[int, Tested]) -> list[int]:
    """Ranks of which some fault leaves the evidence, or none of all could be simulated."""
    return [rank for rank, one in tested.items() if one.reproduced or one.untested == len(_ANY)]


def _count_messages(entries: Entries, half: str) -> Counter[tuple[str, int, int]]:
    """Numbers of sends, or receives, of a rank: by group, and the ranks of both ends in it."""
    return Counter(
        (entries.group_names[group].name, one.src, one.dst)
        for group, number in zip(entries.group.tolist(), entries.operation.tolist(), strict=True)
        if (one := entries.operations[number]).spec.half == half
    )


def _without_untold(summary: str) -> str:
    """A summary that goes on, without that nothing tells which of several is wrong."""
    return summary.removesuffix(f"{UNTOLD}.").removesuffix(".")


def _is_on_another_group(one: Unmatched) -> bool:
    """True if the peer waits in a message of another group than the one that lacks its half."""
    instead = one.instead
    return instead is not None and instead.seq is None and instead.group != one.call.group
