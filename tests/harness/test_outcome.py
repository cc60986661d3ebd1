"""Verdicts against expectations, and the exit codes that follow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from hanglab.analyzer.verdict import Cause, CollectiveRef, Finding, Location, Status, Verdict
from hanglab.harness.jobs.outcome import Facts, Outcome, exit_code, judge, same_file
from hanglab.harness.jobs.plan import Options, requests_of
from hanglab.harness.scenarios.declaration import Expect, Scenario, default_status

FILE = Path("/somewhere/scenarios/train.py")
EXPECT = Expect(Cause.SKIPPED_COLLECTIVE, culprits={1}, group="default_pg")
HUNG = Verdict(
    status=Status.HUNG,
    cause=Cause.SKIPPED_COLLECTIVE,
    culprits=[1],
    collective=CollectiveRef("default_pg", "0", [0, 1, 2, 3], 12, "all_reduce"),
    location=Location(str(FILE), 21, "train", 1),
)


def scenario(expect: Expect = EXPECT) -> Scenario:
    return Scenario(
        name="some",
        source=FILE,
        line=10,
        function="some",
        program=FILE,
        expect=expect,
        fault_lines=(19,),
        seen_lines=(21,),
    )


def outcome(verdict: Verdict, facts: Facts | None = None, **more: Any) -> Outcome:
    declared = more.get("expect", EXPECT)
    judged = judge(
        scenario(declared), more.get("variant", "fault"), "gloo", 4, verdict, facts or Facts()
    )
    assert bool(judged.reason) is (judged.outcome is not Outcome.PASS)
    return judged.outcome


def changed(**fields: Any) -> Verdict:
    return msgspec.structs.replace(HUNG, **fields)


def test_the_expected_verdict_passes() -> None:
    assert outcome(HUNG) is Outcome.PASS


@pytest.mark.parametrize(
    "fields",
    [
        {"status": Status.SLOW},
        {"cause": Cause.COLLECTIVE_MISMATCH},
        {"culprits": [1, 2]},
        {"culprits": []},
        {"collective": None},
        {"collective": CollectiveRef("other", "1", [0, 1], 12, "all_reduce")},
        {"location": None},
        {"location": Location(str(FILE), 19, "train", 1)},
        {"location": Location("/somewhere/else/other.py", 21, "train", 1)},
        {
            "findings": [
                Finding(status=Status.HUNG, cause=Cause.SKIPPED_COLLECTIVE, culprits=[1]),
                Finding(status=Status.HUNG, cause=Cause.BUSY_LOOP, culprits=[3]),
            ]
        },
    ],
)
def test_whatever_differs_makes_it_wrong(fields: dict[str, Any]) -> None:
    assert outcome(changed(**fields)) is Outcome.WRONG_VERDICT


def test_no_location_means_that_none_may_be_named() -> None:
    expect = Expect(Cause.SKIPPED_COLLECTIVE, culprits={1}, location=None)
    assert outcome(HUNG, expect=expect) is Outcome.WRONG_VERDICT
    assert outcome(changed(location=None), expect=expect) is Outcome.PASS


def test_inconclusive_is_neither_right_nor_wrong() -> None:
    verdict = Verdict(status=Status.INCONCLUSIVE, summary="nothing proves it")
    assert outcome(verdict) is Outcome.INCONCLUSIVE


def test_a_fault_without_effect_is_never_a_pass() -> None:
    healthy = Verdict(status=Status.HEALTHY, summary="all is well")
    assert outcome(healthy, Facts(finished=True)) is Outcome.NOT_REPRODUCED
    # What the job did decides, even if the analyzer says what was expected.
    assert outcome(HUNG, Facts(missed=("Freeze of rank 2",))) is Outcome.NOT_REPRODUCED
    inconclusive = Verdict(status=Status.INCONCLUSIVE)
    assert outcome(inconclusive, Facts(finished=True)) is Outcome.NOT_REPRODUCED


def test_a_hung_job_that_is_called_healthy_is_a_wrong_verdict() -> None:
    assert outcome(Verdict(status=Status.HEALTHY)) is Outcome.WRONG_VERDICT


def test_a_body_that_raises_elsewhere_is_a_harness_error() -> None:
    failed = Verdict(status=Status.FAILED, cause=Cause.EXCEPTION, culprits=[0])
    facts = Facts(failed=(0,), raised="Traceback ...")
    assert outcome(failed, facts) is Outcome.HARNESS_ERROR


def test_controls_must_be_healthy() -> None:
    assert outcome(Verdict(status=Status.HEALTHY), variant="control") is Outcome.PASS
    assert outcome(HUNG, variant="control") is Outcome.WRONG_VERDICT
    inconclusive = Verdict(status=Status.INCONCLUSIVE)
    assert outcome(inconclusive, variant="control") is Outcome.INCONCLUSIVE
    failed = Verdict(status=Status.FAILED, cause=Cause.EXCEPTION)
    assert outcome(failed, Facts(failed=(2,)), variant="control") is Outcome.HARNESS_ERROR


@pytest.mark.parametrize(
    "outcomes, code",
    [
        ([], 0),
        ([Outcome.PASS, Outcome.SKIPPED], 0),
        ([Outcome.NOT_REPRODUCED, Outcome.PASS], 3),
        ([Outcome.NOT_REPRODUCED, Outcome.INCONCLUSIVE], 2),
        ([Outcome.INCONCLUSIVE, Outcome.WRONG_VERDICT], 1),
        ([Outcome.WRONG_VERDICT, Outcome.HARNESS_ERROR], 4),
    ],
)
def test_the_gravest_outcome_decides_the_exit_code(outcomes: list[Outcome], code: int) -> None:
    assert exit_code(outcomes) == code


def test_status_by_cause_and_backend() -> None:
    assert default_status(Cause.SIZE_MISMATCH, "gloo") is Status.FAILED
    assert default_status(Cause.SIZE_MISMATCH, "nccl") is Status.HUNG
    assert default_status(Cause.SLOW_COMPUTE, "gloo") is Status.SLOW
    assert default_status(Cause.REDUCTION_MISMATCH, "nccl") is Status.CORRUPT
    assert default_status(Cause.EXCEPTION, "nccl") is Status.FAILED
    assert default_status(Cause.MISSING_RANK, "gloo") is Status.HUNG
    expect = Expect(Cause.CRASH, {0}, status={"nccl": Status.HUNG})
    assert expect.status_on("nccl") is Status.HUNG
    assert expect.status_on("gloo") is Status.FAILED


def test_all_ranks_can_be_culprits() -> None:
    expect = Expect(Cause.INPUT_STARVED, "all")
    assert expect.culprits_of(3) == [0, 1, 2]
    with pytest.raises(ValueError, match="culprits"):
        Expect(Cause.INPUT_STARVED, "some")  # type: ignore[arg-type]


def test_files_of_dumps_may_be_shortened(tmp_path: Path) -> None:
    path = tmp_path / "a" / "train.py"
    path.parent.mkdir()
    path.touch()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    assert same_file(str(path), path)
    assert same_file(str(tmp_path / "link" / "train.py"), path)
    assert same_file("a/train.py", path)
    assert same_file("train.py", path)
    assert not same_file("b/train.py", path)
    assert not same_file("", path)


def test_two_faults_at_once_need_both_findings_and_no_other() -> None:
    def found(cause: Cause, *culprits: int) -> Finding:
        return Finding(
            status=Status.SLOW, category=cause.category, cause=cause, culprits=list(culprits)
        )

    def slow(*findings: Finding) -> Verdict:
        first = findings[0]
        return Verdict(
            status=Status.SLOW,
            cause=first.cause,
            culprits=first.culprits,
            findings=list(findings),
        )

    late, starved = found(Cause.SLOW_COMPUTE, 2), found(Cause.SLOW_INPUT, 1)
    also = (Expect(Cause.SLOW_COMPUTE, culprits={2}),)
    expect = Expect(Cause.SLOW_INPUT, culprits={1}, location=None, also=also)
    assert outcome(slow(starved, late), expect=expect) is Outcome.PASS
    assert outcome(slow(starved), expect=expect) is Outcome.WRONG_VERDICT
    assert outcome(slow(late), expect=expect) is Outcome.WRONG_VERDICT
    elsewhere = found(Cause.SLOW_COMPUTE, 3)
    assert outcome(slow(starved, elsewhere), expect=expect) is Outcome.WRONG_VERDICT
    third = found(Cause.GC_PAUSE, 0)
    assert outcome(slow(starved, late, third), expect=expect) is Outcome.WRONG_VERDICT


def test_a_fault_that_did_not_end_is_an_error_of_the_harness_whatever_the_verdict() -> None:
    facts = Facts(remaining=("CutOff of rank 1 did not end",))
    assert outcome(HUNG, facts) is Outcome.HARNESS_ERROR
    assert outcome(changed(status=Status.HEALTHY), facts, variant="control") is (
        Outcome.HARNESS_ERROR
    )


def test_a_control_without_its_circumstance_shows_nothing() -> None:
    healthy = changed(status=Status.HEALTHY, cause=None, culprits=[])
    facts = Facts(finished=True, missed=("ClockSkew of rank 1",))
    assert outcome(healthy, facts, variant="control") is Outcome.NOT_REPRODUCED


HEALTHY = Verdict(status=Status.HEALTHY)
UNDECIDED = Verdict(status=Status.INCONCLUSIVE, summary="two groups of two face each other")


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [
        (HEALTHY, Outcome.PASS),
        (UNDECIDED, Outcome.INCONCLUSIVE),
        (HUNG, Outcome.WRONG_VERDICT),
    ],
)
def test_a_healthy_scenario_is_its_own_control(verdict: Verdict, expected: Outcome) -> None:
    assert outcome(verdict, expect=Expect.healthy(), variant="control") is expected


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [
        (UNDECIDED, Outcome.PASS),
        (HEALTHY, Outcome.WRONG_VERDICT),
        (HUNG, Outcome.WRONG_VERDICT),
        (changed(culprits=[2]), Outcome.WRONG_VERDICT),
    ],
)
def test_an_inconclusive_verdict_can_be_the_one_to_get(verdict: Verdict, expected: Outcome) -> None:
    assert outcome(verdict, expect=Expect.inconclusive()) is expected


def test_an_undecidable_job_that_ends_well_was_not_reproduced() -> None:
    ended = Facts(finished=True)
    assert outcome(HEALTHY, ended, expect=Expect.inconclusive()) is Outcome.NOT_REPRODUCED


def test_only_healthy_and_inconclusive_have_no_cause() -> None:
    with pytest.raises(ValueError, match="healthy"):
        Expect(None, (), status=Status.HUNG)


def test_a_healthy_scenario_runs_once_with_or_without_controls() -> None:
    for control in (True, False):
        asked = requests_of(scenario(Expect.healthy()), Options(control=control))
        assert [one.variant for one in asked] == ["control"]
    asked = requests_of(scenario(Expect.inconclusive()), Options())
    assert [one.variant for one in asked] == ["fault", "control"]
