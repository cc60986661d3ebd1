"""The search for the smallest hang of a job: simulated first, each step confirmed by a real run."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from hanglab.analyzer.hang_similarity import SimilarityTest
from hanglab.analyzer.program.minimisation import PHASES, ROUNDS, Phase
from hanglab.analyzer.program.reduced_program import ReducedProgram, keep_ranks, operations_of
from hanglab.harness.errors import HanglabError
from hanglab.harness.minimisation.confirmation import Confirmed, Confirmer, VerdictAgreement

#: Real runs after which what has been confirmed is good enough.
_MOST_RUNS = 40
#: Calls of all ranks that are run for real where a run has refused fewer.
_MOST_CALLS = 4000
#: Ranks and operations that are small enough: few to read, and to step through by hand.
_SMALL_RANKS, _SMALL_OPERATIONS = 4, 10


class HangLost(HanglabError):
    """Calls of a job that do not hang for the same reason when they are run."""

    advice = "`hanglab replay` runs all of its calls and compares; what is no call is not in them."
    exit_code = 3


class Search:
    """``confirmed`` is the smallest that a real run has confirmed, also where it was stopped."""

    def __init__(
        self,
        similarity: SimilarityTest,
        confirmer: Confirmer,
        tell: Callable[[str, ReducedProgram], None],
    ) -> None:
        """``tell`` hears of each program that is tried, and in which phase; it may raise."""
        self._similarity = similarity
        self._confirmer = confirmer
        self._tell = tell
        self._refused: set[ReducedProgram] = set()
        # Where a simulation has another cause, real runs are likely to as well.
        self._enough = VerdictAgreement.EXACT if similarity.cause else VerdictAgreement.CULPRITS
        self.confirmed: Confirmed | None = None

    def run(self, starts: Iterable[ReducedProgram]) -> Confirmed:
        """The smallest that is left of the first of ``starts`` of which anything is confirmed.

        Each has more of the job than the one before.  Raises HangLost where not even the last can
        be confirmed.
        """
        lost = HangLost("Of the calls of this job none are left that could be run.")
        for begin in starts:
            if self._refused and (begin.calls > _MOST_CALLS or self._confirmer.runs >= _MOST_RUNS):
                break
            try:
                return self._run(begin)
            except HangLost as error:
                lost = error
        raise lost

    def _run(self, begin: ReducedProgram) -> Confirmed:
        current = begin
        if self._enough is VerdictAgreement.CULPRITS:
            # What the whole has, its parts must keep: simulations do not tell.
            self._confirm_all([begin])
        for _ in range(ROUNDS):
            before = current
            for name, phase in PHASES:
                current = self._shrink(current, name, phase)
            if current == before or self._confirmer.runs >= _MOST_RUNS:
                break
        if self.confirmed is None:
            self._confirm_all([begin])
        self._take_more_ranks(begin)
        assert self.confirmed is not None
        return self.confirmed

    def _take_more_ranks(self, begin: ReducedProgram) -> None:
        """Take another rank of ``begin`` in where the smallest has many operations, and one fewer.

        A peer that is like another may show whose order is broken, which takes rounds without it.
        """
        assert self.confirmed is not None
        kept = self.confirmed.reproduction.reduced
        for rank in begin.ranks:
            if len(operations_of(kept.program)) <= _SMALL_OPERATIONS:
                return
            if rank in kept.ranks or len(kept.ranks) >= _SMALL_RANKS:
                continue
            ranks = {*kept.ranks, rank}
            places = [place for place, name in enumerate(begin.ranks) if name in ranks]
            larger = self._simulated_smallest(keep_ranks(begin, places))
            if larger is not None and len(operations_of(larger.program)) <= _SMALL_OPERATIONS:
                kept = self._confirm_all([larger]) or kept

    def _simulated_smallest(self, begin: ReducedProgram) -> ReducedProgram | None:
        """The rest that phases leave with all of its ranks; None if it does not hang so."""

        def holds(reduced: ReducedProgram) -> bool:
            self._tell("operations of more ranks", reduced)
            return (
                reduced.ranks == begin.ranks
                and reduced not in self._refused
                and self._similarity.holds(reduced)
            )

        if not holds(begin):
            return None
        current = begin
        for _ in range(ROUNDS):
            before = current
            for _, phase in PHASES:
                current = phase(current, holds, self._similarity.kept_verdict.culprits)
            if current == before:
                break
        return current

    def _shrink(self, current: ReducedProgram, name: str, phase: Phase) -> ReducedProgram:
        """The program that a phase leaves, as far as a real run confirms it."""
        accepted: list[ReducedProgram] = [] if self.confirmed else [current]

        def holds(reduced: ReducedProgram) -> bool:
            self._tell(name, reduced)
            if reduced in self._refused or not self._similarity.holds(reduced):
                return False
            accepted.append(reduced)
            return True

        smaller = phase(current, holds, self._similarity.kept_verdict.culprits)
        if smaller == current:
            return current
        # Each that was accepted is made of the one before.
        return self._confirm_all(list(dict.fromkeys([*accepted, smaller]))) or current

    def _confirm_all(self, steps: list[ReducedProgram]) -> ReducedProgram | None:
        """The furthest of ``steps`` that a real run confirms; None if none does.

        Raises HangLost if none does and nothing had been confirmed before.
        """
        low, high = 0, len(steps)
        place = high - 1
        found: ReducedProgram | None = None
        partly: Confirmed | None = None
        known = VerdictAgreement.NONE if self.confirmed is None else self.confirmed.agreement
        enough = max(self._enough, known)
        while low < high:
            confirmed = self._confirmer.confirm(steps[place], enough)
            if confirmed is not None and confirmed.agreement >= enough:
                self.confirmed, found = confirmed, steps[place]
                low = place + 1
            else:
                partly = partly or confirmed
                self._refused.add(steps[place])
                high = place
            if self._confirmer.runs >= _MOST_RUNS:
                break
            place = (low + high) // 2
        if found is not None or self.confirmed is not None:
            return found
        if partly is None:
            raise HangLost(
                "The calls of this job do not hang for the same reason when they are run."
            )
        # The same ranks are to blame in whatever was tried, for another cause.
        self._enough, self.confirmed = VerdictAgreement.CULPRITS, partly
        self._refused.clear()
        return partly.reproduction.reduced
