"""The part of a hang of a job that a smaller Program still has, by its simulation."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from hanglab.analyzer.assumed_calls import RecordedCall
from hanglab.analyzer.program.minimisation import exactly_ranks, last_operations
from hanglab.analyzer.program.program import Program
from hanglab.analyzer.program.reduced_program import (
    ReducedProgram,
    groups_of,
    of_members,
    whole,
)
from hanglab.analyzer.program.simulation import Backend, Run
from hanglab.analyzer.recorded_endings import RecordedEnding
from hanglab.analyzer.replayable import NotReplayable, ReplayableJob, program_of
from hanglab.analyzer.simulated_verdict import Simulation, semantics_of, simulated
from hanglab.analyzer.source_positions import positions_among
from hanglab.analyzer.verdict import Cause, Status, Verdict
from hanglab.recorder.case.backends import backend_of

#: So many culprits all stay; of more some may go with their ranks.
_KEPT_CULPRITS = 3

#: ProgramOperation and line of a call.
_Site = tuple[str, int]


@dataclass(frozen=True)
class KeptVerdict:
    """Cause and culprits that must stay; culprits are ranks of the whole job."""

    cause: Cause
    culprits: frozenset[int]
    #: The job ended well all the same, with wrong numbers.
    corrupt: bool = False

    def fits(self, verdict: Verdict, ranks: Collection[int]) -> bool:
        """True if a verdict on ``ranks`` of the job alone has the cause and blames the same."""
        return verdict.cause is self.cause and self.names(verdict, ranks)

    def names(self, verdict: Verdict, ranks: Collection[int]) -> bool:
        """True if it blames the same ranks, whatever for."""
        if verdict.status in (Status.HEALTHY, Status.INCONCLUSIVE) or not self.are_left(ranks):
            return False
        if (verdict.status is Status.CORRUPT) is not self.corrupt:
            return False
        left = tuple(ranks)
        named = {left[rank] for rank in verdict.culprits if rank < len(left)}
        return named == self.culprits & set(left)

    def are_left(self, ranks: Collection[int]) -> bool:
        """True if ``ranks`` still have the culprits, or enough of very many."""
        left = self.culprits & set(ranks)
        return len(left) >= (
            len(self.culprits) if len(self.culprits) <= _KEPT_CULPRITS else min(2, len(ranks))
        )


@dataclass(frozen=True)
class SimilarityTest:
    """Test of a smaller program: its simulation has so much in common with the job that hung."""

    kept_verdict: KeptVerdict
    #: The verdict of a simulation must have the cause too; without it, name the culprits, all along
    #: for what it named them for in the beginning (``instead``).
    cause: bool
    instead: Cause | None = None
    #: The simulation is judged by its verdict; without it, only by where its ranks wait.
    verdict: bool = True
    #: What each rank of the whole job waited in; None where ranks may wait in other calls.
    waits: tuple[frozenset[_Site], ...] | None = None
    #: Ranks of the whole job that must keep a call: without one, nothing tells what they left.
    called: frozenset[int] = frozenset()
    #: Semantics of the backend that smaller programs are to run on.
    backend: Backend = "gloo"

    def holds(self, reduced: ReducedProgram) -> bool:
        """True if a simulation of the program is like the job; False for one without calls."""
        if reduced.calls == 0 or not self.kept_verdict.are_left(reduced.ranks):
            return False
        return self.has(simulated(reduced.program, self.backend), reduced.ranks)

    def has(self, simulation: Simulation, ranks: Collection[int]) -> bool:
        """:meth:`holds` of a program of these ranks of the job that has been simulated."""
        made = zip(ranks, simulation.run.program.actions, strict=True)
        if any(rank in self.called and not calls for rank, calls in made):
            return False
        if self.waits is not None and not self._waits_alike(simulation.run, ranks):
            return False
        if simulation.run.stuck is self.kept_verdict.corrupt:
            return False
        if not self.verdict:
            return True
        verdict = simulation.verdict
        if self.cause:
            return self.kept_verdict.fits(verdict, ranks)
        kept = self.instead is None or verdict.cause is self.instead
        return kept and self.kept_verdict.names(verdict, ranks)

    def _waits_alike(self, run: Run, ranks: Collection[int]) -> bool:
        """True if each rank waits in some of what it waited in, and in nothing else."""
        assert self.waits is not None
        for state, rank in zip(run.ranks, ranks, strict=True):
            open_ = {(one.action.op, one.action.site) for one in state.issued if not one.done}
            known = self.waits[rank]
            if not open_ <= known or bool(open_) != bool(known):
                return False
        return True


def recognise(
    job: ReplayableJob,
    before_each: Callable[[], None] = lambda: None,
    backend: Backend = "gloo",
) -> tuple[SimilarityTest, Iterator[ReducedProgram]]:
    """The closest similarity that a simulation of the job's last operations has, and these.

    ``backend`` has the semantics of the one that they are to run on.  They are the fewest of
    the last operations that are like the job, then more and more of them,
    simulated as they are asked for: at least one, the last the whole job.  ``before_each`` is
    called before each simulation, and may raise to end it.  Raises NotReplayable where a
    simulation of all its calls does not even stop at the same place.
    """
    kept_verdict = _kept_verdict(job)
    if backend == "nccl":
        on_device = with_device_waits(job, before_each)
        if on_device is not None:
            return on_device[1:]
    # Where hosts only enqueue, what they went on from may have held their devices up.
    for in_order in (False,) if backend_of(job.backend).blocking else (False, True):
        program = program_of(job, in_order=in_order)
        found = _recognised(job, program, kept_verdict, before_each, backend)
        if found is not None:
            return found
    raise NotReplayable(
        "Simulated, the calls that these dumps show do not stop where the job did.",
        "`hanglab replay` runs them for real; `hanglab entries` shows what the dumps tell.",
    )


def with_device_waits(
    job: ReplayableJob, before_each: Callable[[], None] = lambda: None
) -> tuple[ReplayableJob, SimilarityTest, Iterator[ReducedProgram]] | None:
    """The job with each call waited for by what its device runs next, if that hangs as it did.

    Dumps of an enqueuing backend do not tell which calls were asynchronous, and most are not.
    With it what :func:`recognise` gives.  None for a job whose simulation hangs otherwise then,
    and for one on a blocking backend.
    """
    if not backend_of(job.backend).enqueued or not job.verdict.culprits:
        return None
    waiting = replace(job, device_waits=True)
    kept_verdict = _kept_verdict(job)
    found = _recognised(waiting, program_of(waiting), kept_verdict, before_each, "nccl", exact=True)
    return None if found is None else (waiting, *found)


def _kept_verdict(job: ReplayableJob) -> KeptVerdict:
    corrupt = job.verdict.status is Status.CORRUPT
    return KeptVerdict(_cause_of(job), frozenset(job.verdict.culprits), corrupt)


def _recognised(
    job: ReplayableJob,
    program: Program,
    kept_verdict: KeptVerdict,
    before_each: Callable[[], None],
    backend: Backend,
    *,
    exact: bool = False,
) -> tuple[SimilarityTest, Iterator[ReducedProgram]] | None:
    """``exact``: by its waits and its verdict alone."""

    def simulations() -> Iterator[tuple[ReducedProgram, Simulation]]:
        for last in last_operations(whole(program), backend):
            before_each()
            yield last, simulated(last.program, backend)

    strictest, *others = _similarity_tests(job, program, kept_verdict, backend)
    following = simulations()
    tried: list[tuple[ReducedProgram, Simulation]] = []
    for last, simulation in following:
        tried.append((last, simulation))
        if strictest.has(simulation, last.ranks):
            return strictest, _alike(strictest, chain(tried[-1:], following))
    for similarity in [] if exact else others:
        for place, (last, simulation) in enumerate(tried):
            if similarity.has(simulation, last.ranks):
                named = simulation.verdict.cause if similarity.verdict else None
                same = replace(similarity, instead=named)
                return same, _alike(same, iter(tried[place:]))
    return None


def _alike(
    similarity: SimilarityTest, tried: Iterator[tuple[ReducedProgram, Simulation]]
) -> Iterator[ReducedProgram]:
    return (last for last, simulation in tried if similarity.has(simulation, last.ranks))


def _cause_of(job: ReplayableJob) -> Cause:
    if job.verdict.cause is None or not job.verdict.culprits:
        raise NotReplayable("The verdict blames nobody, so nothing tells what has to stay.")
    return job.verdict.cause


def _similarity_tests(
    job: ReplayableJob, program: Program, kept_verdict: KeptVerdict, backend: Backend
) -> Iterator[SimilarityTest]:
    """Tests of similarity, the strictest first."""
    waits = tuple(
        frozenset(
            (action.op, action.site)
            for action, call in zip(actions, calls, strict=True)
            if not call.finished
        )
        for actions, calls in zip(program.actions, job.calls, strict=True)
    )
    strict = SimilarityTest(kept_verdict, cause=True, waits=waits, backend=backend)
    # Hosts that only enqueue run ahead of what they wait in, and do not on gloo.
    alike = semantics_of(job.backend) == backend
    if alike:
        yield strict
    yield replace(strict, waits=None)
    # What is no call is to blame: it was done by a rank that had made some.
    called = frozenset(rank for rank in kept_verdict.culprits if job.calls[rank])
    if alike:
        yield replace(strict, cause=False, called=called)
    yield replace(strict, cause=False, called=called, waits=None)
    if alike:
        yield replace(strict, verdict=False)


def cut_ranks(
    job: ReplayableJob, size: int, backend: Backend = "gloo"
) -> tuple[ReplayableJob, tuple[int, ...]]:
    """The job of ``size`` of its ranks alone, which hang for the same reason, and which they are.

    ``backend`` has the semantics of the one that they are to run on.  The ranks are numbered anew;
    the verdict stays that on the whole job.  Raises NotReplayable where a simulation finds no such
    ranks.
    """
    similarity, starts = recognise(job, backend=backend)
    found = exactly_ranks(next(starts), similarity.holds, similarity.kept_verdict.culprits, size)
    if found is None:
        raise NotReplayable(
            f"Simulated, no {size} ranks of this job hang for the same reason by themselves.",
            "Ask for more ranks, or leave --world-size out; `hanglab minimise` finds the fewest.",
        )
    ranks = found.ranks
    groups, places = groups_of(job.groups, ranks)
    calls = [
        [
            replace(call, action=action)
            for call in job.calls[rank]
            if (action := of_members(call.action, places[call.action.group])) is not None
        ]
        for rank in ranks
    ]
    used = sorted({call.action.group for mine in calls for call in mine})
    number = {group: place for place, group in enumerate(used)}
    calls = [
        [replace(c, action=replace(c.action, group=number[c.action.group])) for c in mine]
        for mine in calls
    ]
    ended = frozenset(place for place, rank in enumerate(ranks) if rank in job.ended)
    endings = {at: job.endings[rank] for at, rank in enumerate(ranks) if rank in job.endings}
    before_stop = {
        at: [_among(done, job.calls[rank], places) for done in job.before_stop[rank]]
        for at, rank in enumerate(ranks)
        if rank in job.before_stop
    }
    kept = tuple(groups[group] for group in used)
    job = replace(job, groups=kept, calls=calls, ended=ended, endings=endings)
    positions = positions_among(job.positions, ranks)
    return replace(job, before_stop=before_stop, positions=positions), ranks


def _among(
    done: RecordedEnding, calls: Sequence[RecordedCall], places: Sequence[Mapping[int, int]]
) -> RecordedEnding:
    """The deed of a rank, before as many of its calls as are left to it."""
    after = done.operations_after
    if not after or after > len(calls):
        return done
    later = [call.action for call in calls[-after:]]
    left = sum(of_members(action, places[action.group]) is not None for action in later)
    return replace(done, operations_after=left)
