"""False alarms, missed hangs and delays of the detector of ``hanglab watch``.

``python benchmarks/watch.py [--hours 20] [--least 60,120,180]`` reads made-up days of jobs
(``watch_jobs.py``), with the clock of those days.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time

from watch_jobs import ELSEWHERE, HANGS, HEALTHY, MadeUpJob

from hanglab.harness.watching.job_pace import JobPauses
from hanglab.harness.watching.pace import PaceLimits

#: Seconds between two looks, as in the service.
EVERY_S = 2.0
#: Shares of its limit at which a pause with computing ranks is looked at closer, as in the service.
CLOSER_AT = (0.5, 0.66, 0.82)
#: Whatever is not told by then is missed: NCCL's watchdog ends the job.
MOST_S = 600.0


def alarms(job: MadeUpJob, limits: PaceLimits, until_s: float, elsewhere: bool) -> list[float]:
    """Times of the alarms; after each the job counts as having been looked at and found well."""
    pace: JobPauses | None = None
    found = []
    rounds = 0
    for at_s, signs in job.readings(EVERY_S):
        if pace is None:
            pace = JobPauses(limits, at_s, elsewhere=elsewhere)
        seen: frozenset[int] = frozenset()
        doubtful = pace.doubtful
        if not doubtful:
            rounds = 0
        elif rounds < len(CLOSER_AT) and pace.pace.pause_s >= CLOSER_AT[rounds] * pace.pace.limit_s:
            rounds += 1
            seen = frozenset(rank for rank in doubtful if rounds > 1 and job.varied[rank])
        pace.look(at_s, signs, seen)
        if pace.stop:
            found.append(at_s)
            if at_s >= job.hung_s:
                break
            pace.forgive()
        if at_s >= min(until_s, job.hung_s + MOST_S):
            break
    return found


def healthy(limits: PaceLimits, hours: float, seeds: int) -> tuple[float, dict[str, int]]:
    total, by_day = 0.0, {}
    for name, day in HEALTHY.items():
        count = 0
        for seed in range(seeds):
            job = MadeUpJob(day, seed)
            count += len(alarms(job, limits, hours * 3600, name in ELSEWHERE))
            total += hours
        by_day[name] = count
    return total, by_day


def hung(limits: PaceLimits, seeds: int) -> dict[str, list[float | None]]:
    """Seconds from each hang to its alarm; None where it was missed."""
    found: dict[str, list[float | None]] = {}
    for kind, hang in HANGS.items():
        for name, day in HEALTHY.items():
            for seed in range(seeds):
                hang_s = 400 + 2000.0 * ((seed * 7 + len(name)) % 5)
                job = MadeUpJob(day, 1000 + seed, hang_s, hang)
                told = alarms(job, limits, float("inf"), name in ELSEWHERE)
                late = [at - job.hung_s for at in told if at >= job.hung_s]
                found.setdefault(kind, []).append(late[0] if late else None)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--hours", type=float, default=20.0)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--least", default="60,120,180", help="least still pauses, in seconds")
    options = parser.parse_args()
    for text in options.least.split(","):
        limits = PaceLimits().scaled(float(text)) if float(text) != 120 else PaceLimits()
        begun = time.process_time()
        hours, by_day = healthy(limits, options.hours, options.seeds)
        count = sum(by_day.values())
        told = ", ".join(f"{name} {n}" for name, n in by_day.items() if n) or "none"
        print(
            f"still {text} s: {count} false alarms in {hours:g} job-hours "
            f"({100 * count / hours:.2f} in 100 h): {told}"
        )
        for kind, delays in hung(limits, options.seeds).items():
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
