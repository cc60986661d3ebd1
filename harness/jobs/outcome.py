"""A verdict against its expectation: what a job's run came to, and the exit code."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path, PurePath

from hanglab.analyzer.verdict import Finding, Status, Verdict
from hanglab.harness.jobs.run_folder import Variant
from hanglab.harness.scenarios.declaration import Expect, Scenario


class Outcome(str, Enum):
    PASS = "pass"
    WRONG_VERDICT = "wrong verdict"
    INCONCLUSIVE = "inconclusive"
    NOT_REPRODUCED = "not reproduced"
    HARNESS_ERROR = "harness error"
    SKIPPED = "skipped"


#: Exit code of each outcome, the gravest first: with several, the first that occurred wins.
_EXIT_CODES = (
    (Outcome.HARNESS_ERROR, 4),
    (Outcome.WRONG_VERDICT, 1),
    (Outcome.INCONCLUSIVE, 2),
    (Outcome.NOT_REPRODUCED, 3),
)


def exit_code(outcomes: Iterable[Outcome]) -> int:
    """Exit code of ``hanglab run``; skipped jobs do not count."""
    occurred = set(outcomes)
    return next((code for outcome, code in _EXIT_CODES if outcome in occurred), 0)


@dataclass(frozen=True)
class Facts:
    """Observations of the job by the harness, besides the Case."""

    #: Ranks that ended by themselves with an error, in that order.
    failed: tuple[int, ...] = ()
    #: True where every rank ended by itself without an error.
    finished: bool = False
    #: Faults from outside that did not strike, in words.
    missed: tuple[str, ...] = ()
    #: Faults from outside of which it is not proved that they ended, in words.
    remaining: tuple[str, ...] = ()
    #: Traceback of the body where it raised without coming past the marked lines.
    raised: str | None = None


@dataclass(frozen=True)
class Judgement:
    outcome: Outcome
    #: One sentence; empty for a pass.
    reason: str = ""


def judge(
    scenario: Scenario,
    variant: Variant,
    backend: str,
    world_size: int,
    verdict: Verdict,
    facts: Facts,
) -> Judgement:
    """Compares a verdict with what the scenario declares (``scenario.expect`` must be given)."""
    if facts.remaining:
        return Judgement(Outcome.HARNESS_ERROR, "; ".join(facts.remaining))
    if variant == "control":
        return _judge_control(verdict, facts)
    expect = scenario.expect
    assert expect is not None
    differences = compare(scenario, expect, backend, world_size, verdict)
    if not differences and not facts.missed:
        return Judgement(Outcome.PASS)
    if facts.raised is not None:
        return Judgement(Outcome.HARNESS_ERROR, "the scenario's body raised before its fault")
    if facts.missed:
        return Judgement(
            Outcome.NOT_REPRODUCED,
            "the fault did not strike: " + "; ".join(facts.missed),
        )
    expected_status = expect.status_on(backend)
    if facts.finished and expected_status in (Status.HUNG, Status.FAILED):
        return Judgement(
            Outcome.NOT_REPRODUCED,
            f"every rank ended without an error, although it should be {expected_status.value}",
        )
    if verdict.status is Status.HEALTHY and facts.finished:
        return Judgement(Outcome.NOT_REPRODUCED, "nothing in the evidence shows the fault")
    if verdict.status is Status.INCONCLUSIVE:
        return Judgement(Outcome.INCONCLUSIVE, verdict.summary or "the evidence proves no cause")
    return Judgement(Outcome.WRONG_VERDICT, "; ".join(differences))


def _judge_control(verdict: Verdict, facts: Facts) -> Judgement:
    if facts.missed:
        return Judgement(
            Outcome.NOT_REPRODUCED, "its circumstance is missing: " + "; ".join(facts.missed)
        )
    if facts.failed:
        ranks = ", ".join(map(str, sorted(facts.failed)))
        return Judgement(Outcome.HARNESS_ERROR, f"the control failed by itself, on rank {ranks}")
    if verdict.status is Status.HEALTHY:
        return Judgement(Outcome.PASS)
    if verdict.status is Status.INCONCLUSIVE:
        return Judgement(Outcome.INCONCLUSIVE, verdict.summary or "the evidence proves nothing")
    return Judgement(Outcome.WRONG_VERDICT, f"a control, but {describe(verdict)}")


def compare(
    scenario: Scenario, expect: Expect, backend: str, world_size: int, verdict: Verdict
) -> list[str]:
    """Differences of a verdict from its expectation, in words."""
    differences = []
    wanted = [expect, *expect.also]
    leading = next((one for one in wanted if one.cause is verdict.cause), expect)
    others = [one for one in wanted if one is not leading]
    expect = leading

    def differ(what: str, expected: object, got: object) -> None:
        differences.append(f"{what} should be {expected}, is {got}")

    status = expect.status_on(backend)
    if verdict.status is not status:
        differ("status", status.value, verdict.status.value)
    if verdict.cause is not expect.cause:
        differ(
            "cause",
            expect.cause.value if expect.cause else None,
            verdict.cause.value if verdict.cause else None,
        )
    culprits = expect.culprits_of(world_size)
    if sorted(verdict.culprits) != culprits:
        differ("culprits", culprits, verdict.culprits)
    group = verdict.collective.group if verdict.collective else None
    if expect.group is not None and group != expect.group:
        differ("group", expect.group, group)
    if not _location_fits(scenario, expect, verdict):
        place = verdict.location
        differ(
            "location",
            expected_location(scenario) or "null",
            f"{place.file}:{place.line}" if place else "null",
        )
    for finding in verdict.findings:
        met = [other for other in others if _is_met(other, finding, backend, world_size)]
        if met:
            others.remove(met[0])
        elif finding.cause is not verdict.cause or set(finding.culprits) - set(verdict.culprits):
            differences.append(f"a further finding says: {describe(finding)}")
    differences += [
        f"no finding says: {other.cause.value} by {other.culprits_of(world_size)}"
        for other in others
        if other.cause is not None
    ]
    return differences


def _is_met(expect: Expect, finding: Finding, backend: str, world_size: int) -> bool:
    return (
        finding.cause is expect.cause
        and finding.status is expect.status_on(backend)
        and sorted(finding.culprits) == expect.culprits_of(world_size)
    )


def expected_location(scenario: Scenario) -> str | None:
    """``file:line`` that the verdict must name; several lines where several are marked."""
    if scenario.expect is None or scenario.expect.location is None:
        return None
    return f"{scenario.program.name}:" + " or ".join(map(str, scenario.seen_lines))


def _location_fits(scenario: Scenario, expect: Expect, verdict: Verdict) -> bool:
    if expect.location is None or verdict.location is None:
        return expect.location is None and verdict.location is None
    return verdict.location.line in scenario.seen_lines and same_file(
        verdict.location.file, scenario.program
    )


def same_file(named: str, path: Path) -> bool:
    """True if a file name out of a dump, whole or only its last parts, means ``path``.

    Pods have the program below a folder of their own, by its whole path.
    """
    parts = PurePath(named).parts
    if PurePath(named).is_absolute():
        whole = path.resolve()
        below = whole.parts[1:]
        return Path(named).resolve() == whole or parts[-len(below) :] == below
    return bool(parts) and path.parts[-len(parts) :] == parts


def describe(verdict: Verdict | Finding) -> str:
    """A verdict in a few words, such as ``hung: busy_loop by rank 3``."""
    words = verdict.status.value
    if verdict.cause is not None:
        words += f": {verdict.cause.value}"
    if verdict.culprits:
        ranks = ", ".join(map(str, verdict.culprits))
        words += f" by rank{'s' if len(verdict.culprits) > 1 else ''} {ranks}"
    return words
