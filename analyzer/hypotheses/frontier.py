"""The frontier of a simulated Program: what each rank has entered, started and finished."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from hanglab.analyzer.hypotheses.last_operations import LastOperations
from hanglab.analyzer.hypotheses.thresholds import UNLIMITED
from hanglab.analyzer.program.simulation import Run, simulate


class Frontier:
    """Last operation of each rank of the Program once nothing moves any more."""

    def __init__(self, last: LastOperations, device_stops: Mapping[int, int] | None = None) -> None:
        """``device_stops``: which of its operations a rank's device never finishes."""
        self._last = last
        self._run: Run = simulate(
            last.program, last.backend, device_stops=device_stops, ahead=UNLIMITED
        )
        self._begun = [
            {
                (issued.action.group, step.number)
                for issued, step in zip(state.issued, steps, strict=False)
                if issued.running and step.number is not None
            }
            for state, steps in zip(self._run.ranks, (*last.steps, (), ()), strict=True)
        ]
        #: By the simulation's own numbers: what is put in or left out moves those that follow.
        self._entered = [
            {(i.action.group, i.seq) for i in state.issued if i.running and not i.action.p2p}
            for state in self._run.ranks
        ]

    def begun(self, rank: int) -> set[tuple[int, int]]:
        """Group and number of the collectives that the rank's device, or host, has entered."""
        return self._begun[rank]

    def is_open(self, rank: int, index: int) -> bool:
        """True if a rank's operation is entered and has not finished."""
        issued = self._run.ranks[rank].issued
        return index < len(issued) and issued[index].running and not issued[index].done

    def held(self) -> list[int]:
        """Places of the ranks that have something which they cannot finish."""
        return [
            rank
            for rank, steps in enumerate(self._last.steps)
            if any(
                not step.finished and not issued.done
                for issued, step in zip(self._run.ranks[rank].issued, steps, strict=False)
            )
        ]

    def is_that_of_the_dumps(self) -> bool:
        """True if all was issued that the dumps have, and no rank is past where its dump stops.

        What it has behind the first unfinished operation may be done, and not seen to be yet.
        """
        for state, steps in zip(self._run.ranks, self._last.steps, strict=False):
            first = next((index for index, step in enumerate(steps) if not step.finished), None)
            if len(state.issued) < len(steps):
                return False
            if first is not None and all(
                issued.done
                for issued, step in zip(state.issued, steps, strict=False)
                if step is steps[first]
                or (step.action.batch and step.action.batch == steps[first].action.batch)
            ):
                return False
        return True

    def goes_on(self, free: Collection[int]) -> bool:
        """True if every rank finishes, or waits only for ranks that are free to come.

        ``free`` are the places of ranks that were held up by the fault alone.
        """
        last = self._last
        waits = {rank: self._waits(rank) for rank in range(len(last.ranks))}
        coming = {rank for rank in free if not waits.get(rank)} | {last.excused}
        grown = True
        while grown:
            grown = False
            for rank, operations in waits.items():
                if rank in coming or not operations:
                    continue
                if rank in free and all(
                    any(one <= coming for one in choices) for choices in operations
                ):
                    coming.add(rank)
                    grown = True
        return all(rank in coming for rank, operations in waits.items() if operations)

    def _waits(self, rank: int) -> list[list[set[int]]]:
        """Sets of ranks of which one must come, for each operation that holds the rank up."""
        last, state = self._last, self._run.ranks[rank]
        found: list[list[set[int]]] = []
        for index, (issued, step) in enumerate(zip(state.issued, last.steps[rank], strict=False)):
            if step.finished or not self.is_open(rank, index):
                continue
            action = issued.action
            members = last.groups[action.group].members
            if action.p2p:
                beyond = (*members, last.excused, last.absent)
                others = members if action.peer is None else (beyond[action.peer],)
                found.append([{other} for other in others if other != rank])
            else:
                key = action.group, issued.seq
                missing = {m for m in members if key not in self._entered[m]}
                # All are there and it does not finish: they do not agree.
                found.append([missing] if missing else [])
        return found
