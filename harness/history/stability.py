"""Stability of a scenario: flaky, always failing, changed at a run, or too few runs to tell.

Nothing is called so by feeling.  The unit is the share of jobs that pass, under one version of
the code (hanglab, torch, the scenario's files), with Wilson's interval of 95 %.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum
from typing import Final

import msgspec

from hanglab.harness.history.past_jobs import CodeVersion, PastJob, PastRun
from hanglab.harness.report.rates import wilson

#: Share of jobs.  Wilson's interval leaves 0 and 1 out as soon as either outcome occurred once,
#: so "excludes both" needs a margin: a rate below one in twenty counts as 0 here.
LEAST_SHARE: Final = 0.05
#: Jobs of either outcome.  One failure may be a machine's.  With both bounds a scenario that
#: fails once in a hundred jobs is called flaky in at most 0.5 % of histories, whatever their
#: length (2 to 300 jobs, summed up exactly), and with one failure for enough in 3 %; one that
#: fails half the time is found out in 78 % of histories of 6 jobs and 98 % of those of 10.
LEAST_JOBS: Final = 2
#: Probability that outcomes in no order at all would lie as they do: that of the intervals.
CHANCE: Final = 0.05


class Stability(str, Enum):
    """The states, that which needs most attention first."""

    ALWAYS_FAILS = "always fails"
    FAILS_SINCE = "changed, fails since"
    PASSES_RARELY = "passes rarely"
    FLAKY = "flaky"
    TOO_FEW = "too few runs to tell"
    FAILS_RARELY = "fails rarely"
    PASSES_SINCE = "changed, passes since"
    NO_FAILURES = "no failures"


_SINCE = {
    Stability.ALWAYS_FAILS: Stability.FAILS_SINCE,
    Stability.NO_FAILURES: Stability.PASSES_SINCE,
}
_BOTH_OUTCOMES = (Stability.FLAKY, Stability.FAILS_RARELY, Stability.PASSES_RARELY)


class ScenarioState(msgspec.Struct, frozen=True):
    """A state; the first run after a change, and the version of the code of which it is said."""

    state: Stability
    since: PastRun | None = None
    version: CodeVersion | None = None
    #: True where the run after the change has other code than that before it; None if unknown.
    code_changed: bool | None = None


def judge_stability(jobs: Sequence[PastJob]) -> ScenarioState:
    """The state of one scenario; ``jobs`` are in the order of their runs, and at least one.

    - No job failed: ``no failures``, however few there were.
    - None passed: ``always fails``, if the interval of the pass rate ends below one half (four
      jobs and more): fewer might fail as a coin falls.
    - All failures lie before one run or all from it on: ``changed`` there, if outcomes in no order
      would lie so with a probability of at most CHANCE: 2 / C(n, k) for k failures in n jobs.
    - Else the newest version of the code decides, by itself (see :func:`_under_one_version`), or
      where it has too few jobs an earlier one that had both outcomes.
    """
    if all(job.passed for job in jobs):
        return ScenarioState(Stability.NO_FAILURES)
    if not any(job.passed for job in jobs):
        always = _under_one_version(jobs) or Stability.TOO_FEW
        return ScenarioState(always)
    return _change(jobs) or _newest_decided(jobs)


def _change(jobs: Sequence[PastJob]) -> ScenarioState | None:
    """The run from which on every outcome is another one than before."""
    before, after = jobs[0], jobs[-1]
    switch = next(at for at, job in enumerate(jobs) if job.passed is not before.passed)
    first = jobs[switch]
    if any(job.passed is before.passed for job in jobs[switch:]):
        return None
    if jobs[switch - 1].run == first.run:
        # The run has both.
        return None
    if 2 / math.comb(len(jobs), switch) > CHANCE:
        return None
    state = Stability.PASSES_SINCE if after.passed else Stability.FAILS_SINCE
    versions = jobs[switch - 1].version, first.version
    changed = None if None in versions else versions[0] != versions[1]
    return ScenarioState(state, first.run, first.version, changed)


def _newest_decided(jobs: Sequence[PastJob]) -> ScenarioState:
    by_version: dict[CodeVersion, list[PastJob]] = {}
    for job in reversed(jobs):
        if job.version is not None:
            by_version.setdefault(job.version, []).append(job)
    newest = jobs[-1].version
    for version, group in by_version.items():
        state = _under_one_version(group)
        if state in _BOTH_OUTCOMES:
            return ScenarioState(state, version=version)
        if state is not None:
            return _of_newest(state, group, jobs) if version == newest else _too_few(newest)
    return _too_few(newest)


def _too_few(newest: CodeVersion | None) -> ScenarioState:
    return ScenarioState(Stability.TOO_FEW, version=newest)


def _of_newest(
    state: Stability, group: Sequence[PastJob], jobs: Sequence[PastJob]
) -> ScenarioState:
    """The one outcome of the newest code, since its first run if no other code ran in between."""
    version = group[0].version
    if list(group) != list(reversed(jobs))[: len(group)]:
        return ScenarioState(state, version=version)
    changed = _SINCE[state]
    return ScenarioState(changed, since=group[-1].run, version=version, code_changed=True)


def _under_one_version(jobs: Sequence[PastJob]) -> Stability | None:
    """The state that jobs of one version prove; None where they are too few.

    ``flaky``: both outcomes occurred, either at least LEAST_JOBS times, and the interval of the
    pass rate lies between LEAST_SHARE and 1 - LEAST_SHARE.  ``fails rarely`` and ``passes rarely``:
    both occurred, and the interval lies beyond the one or the other.
    """
    passed = sum(job.passed for job in jobs)
    failed = len(jobs) - passed
    low, high = wilson(passed, len(jobs))
    if not failed:
        return Stability.NO_FAILURES if low > 1 / 2 else None
    if not passed:
        return Stability.ALWAYS_FAILS if high < 1 / 2 else None
    if low > 1 - LEAST_SHARE:
        return Stability.FAILS_RARELY
    if high < LEAST_SHARE:
        return Stability.PASSES_RARELY
    enough = min(passed, failed) >= LEAST_JOBS
    return Stability.FLAKY if enough and low >= LEAST_SHARE and high <= 1 - LEAST_SHARE else None
