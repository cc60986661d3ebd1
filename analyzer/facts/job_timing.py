"""Time that a job loses to some of its ranks: the window that they are judged by."""

from __future__ import annotations

from dataclasses import dataclass

from hanglab.analyzer.facts.arrival_lag import Arrivals
from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.facts.late_steps import late_steps
from hanglab.analyzer.facts.sections import section_costs
from hanglab.analyzer.facts.time_breakdown import steps, time_breakdowns
from hanglab.analyzer.verdict import Effect, Evidence
from hanglab.recorder.slowness.job_window import JobWindow


@dataclass(frozen=True)
class JobTiming:
    """The evidence of a job, who arrived when, and the window made of both."""

    known: CaseFacts
    found: Arrivals
    window: JobWindow

    @classmethod
    def of(cls, known: CaseFacts, found: Arrivals) -> JobTiming:
        times = time_breakdowns(known, found)
        return cls(
            known,
            found,
            JobWindow(
                span_ns=found.span_ns,
                operations=found.operations,
                steps=steps(known, found),
                lateness=found.lateness,
                times=times,
                sections=section_costs(known),
                alike=any(times.keys() <= {*lag.members} for lag in found.group_lags),
            ),
        )

    def worst(self, ranks: list[int]) -> int:
        """The rank whose own time exceeds its peers' most."""
        return max(ranks, key=lambda rank: self.window.lateness[rank].excess_ns)

    def effect(self, ns: float, section: str | None = None) -> Effect:
        return Effect(
            section=section,
            ms_per_step=round(self.window.ms_per_step(ns), 3),
            share_of_step=round(min(1.0, self.window.share(ns)), 4),
        )

    def lag(self, rank: int) -> Evidence:
        late = self.window.lateness[rank]
        when = late_steps(self.known, self.found, rank)
        return Evidence(
            "flight_recorder",
            rank,
            f"was last, by its own doing, into {late.last} of {late.compared} "
            f"operations; its own time exceeds its peers' by "
            f"{self.window.ms_per_step(max(0.0, late.excess_ns)):.1f} ms a step, and they lost "
            f"{late.lost_ns / 1e6:.0f} ms to it there, {late.share:.0%} of the time"
            + (f", most of it {when}" if when else ""),
        )
