"""False alarms, missed hangs and delays of the detector of ``hanglab watch``.

``python benchmarks/watch.py [--hours 20] [--least 60,120,180]`` reads made-up days of jobs
(``watch_jobs.py``), with the clock of those days; a rule of ParaStack's kind
(``watch_peers.py``) reads the same days.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

from watch_jobs import ELSEWHERE, HANGS, HEALTHY, MadeUpJob
from watch_peers import LowShareRule

from hanglab.harness.watching.job_pace import JobPauses
from hanglab.harness.watching.pace import PaceLimits
from hanglab.harness.watching.signs import Signs

#: Seconds between two looks, as in the service.
EVERY_S = 2.0
#: Shares of its limit at which a pause with computing ranks is looked at closer, as in the service.
CLOSER_AT = (0.5, 0.66, 0.82)
#: Whatever is not told by then is missed: NCCL's watchdog ends the job.
MOST_S = 600.0


class Rule(Protocol):
    """Says at each look whether it takes the job for hung, and is told where it was wrong."""

    def look(self, job: MadeUpJob, at_s: float, signs: dict[int, Signs]) -> bool: ...
    def forgive(self) -> None: ...


#: Makes a rule for a job; True if the job has ranks on other hosts.
MakeRule = Callable[[bool], Rule]


class Ours:
    """The detector of the service, with its closer looks."""

    def __init__(self, limits: PaceLimits, elsewhere: bool) -> None:
        self._limits, self._elsewhere = limits, elsewhere
        self._pace: JobPauses | None = None
        self._rounds = 0

    def look(self, job: MadeUpJob, at_s: float, signs: dict[int, Signs]) -> bool:
        pace = self._pace
        if pace is None:
            pace = self._pace = JobPauses(self._limits, at_s, elsewhere=self._elsewhere)
        seen: frozenset[int] = frozenset()
        doubtful, now = pace.doubtful, pace.pace
        if not doubtful:
            self._rounds = 0
        elif self._rounds < len(CLOSER_AT) and now.pause_s >= CLOSER_AT[self._rounds] * now.limit_s:
            self._rounds += 1
            seen = frozenset(rank for rank in doubtful if self._rounds > 1 and job.varied[rank])
        pace.look(at_s, signs, seen)
        return bool(pace.stop)

    def forgive(self) -> None:
        assert self._pace is not None
        self._pace.forgive()


class LowShare:
    """A rule of ParaStack's kind, which sees stacks alone."""

    def __init__(self, most: int, elsewhere: bool) -> None:
        self._rule = LowShareRule(most)

    def look(self, job: MadeUpJob, at_s: float, signs: dict[int, Signs]) -> bool:
        return self._rule.look(at_s, job.outside, job.varied)

    def forgive(self) -> None:
        self._rule.forgive()


def alarms(job: MadeUpJob, rule: Rule, until_s: float) -> list[float]:
    """Times of the alarms; after each the job counts as having been looked at and found well."""
    found = []
    for at_s, signs in job.readings(EVERY_S):
        if rule.look(job, at_s, signs):
            found.append(at_s)
            if at_s >= job.hung_s:
                break
            rule.forgive()
        if at_s >= min(until_s, job.hung_s + MOST_S):
            break
    return found


def healthy(make: MakeRule, hours: float, seeds: int) -> tuple[float, dict[str, int]]:
    total, by_day = 0.0, {}
    for name, day in HEALTHY.items():
        count = 0
        for seed in range(seeds):
            job = MadeUpJob(day, seed)
            count += len(alarms(job, make(name in ELSEWHERE), hours * 3600))
            total += hours
        by_day[name] = count
    return total, by_day


def hung(make: MakeRule, seeds: int) -> dict[str, list[float | None]]:
    """Seconds from each hang to its alarm; None where it was missed."""
    found: dict[str, list[float | None]] = {}
    for kind, hang in HANGS.items():
        for name, day in HEALTHY.items():
            for seed in range(seeds):
                hang_s = 400 + 2000.0 * ((seed * 7 + len(name)) % 5)
                job = MadeUpJob(day, 1000 + seed, hang_s, hang)
                told = alarms(job, make(name in ELSEWHERE), float("inf"))
                late = [at - job.hung_s for at in told if at >= job.hung_s]
                found.setdefault(kind, []).append(late[0] if late else None)
    return found


def rules(least: str) -> dict[str, MakeRule]:
    """Rules by their titles: ours with each of the least pauses, then those of ParaStack's kind."""
    found: dict[str, MakeRule] = {}
    for text in least.split(","):
        limits = PaceLimits().scaled(float(text)) if float(text) != 120 else PaceLimits()
        found[f"still {text} s"] = partial(Ours, limits)
    for most in (4, 8, 16):
        title = f"of ParaStack's kind, {most * EVERY_S:g} s apart at most"
        found[title] = partial(LowShare, most)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--hours", type=float, default=20.0)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--least", default="60,120,180", help="least still pauses, in seconds")
    options = parser.parse_args()
    for title, make in rules(options.least).items():
        begun = time.process_time()
        hours, by_day = healthy(make, options.hours, options.seeds)
        count = sum(by_day.values())
        told = ", ".join(f"{name} {n}" for name, n in by_day.items() if n) or "none"
        print(
            f"{title}: {count} false alarms in {hours:g} job-hours "
            f"({100 * count / hours:.2f} in 100 h): {told}"
        )
        for kind, delays in hung(make, options.seeds).items():
            known = sorted(one for one in delays if one is not None)
            missed = len(delays) - len(known)
            middle = (
                f"median {statistics.median(known):.0f} s, longest {known[-1]:.0f} s"
                if known
                else "-"
            )
            print(f"    {kind}: {missed} of {len(delays)} missed; {middle}")
        used_s = time.process_time() - begun
        print(f"    {used_s:.0f} s of processor time, load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
