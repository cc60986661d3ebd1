"""Evidence of a healthy verdict on speed: who was compared, and whose speed was not seen."""

from __future__ import annotations

from random import Random

import pytest
from arrival_builders import Simulated
from msgspec.structs import replace

from hanglab.analyzer.engine import conclude
from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.verdict import Status, Verdict
from hanglab.recorder.case.progress_records import Usage
from hanglab.recorder.case.records import Clock, Exit


def ended_well(steps: int = 60, slow: int | None = None) -> CaseFacts:
    """Four ranks of 10 ms a step; one that is slower computes as much longer."""
    simulated = Simulated.of({"0": (0, 1, 2, 3)})
    for _ in range(steps):
        simulated.work(lambda rank: 18.0 if rank == slow else 10.0)
        simulated.meet("0")
    known = simulated.evidence()
    end = max(simulated.now.values())
    begin = known.ranks[0].progress.operations[0].entered_ns  # type: ignore[union-attr]
    for rank, view in known.ranks.items():
        view.exit = Exit(Clock(begin + round(end * 1e6), 0), code=0)
        assert view.progress is not None
        ms = 18 if rank == slow else 10
        view.progress.usage = [
            Usage(begin + round(end * 1e6 * i / 50), ms * steps * 20_000 * i, 0, 0)
            for i in range(51)
        ]
    return known


def told(verdict: Verdict) -> list[str]:
    return [evidence.detail for evidence in verdict.evidence]


def test_a_healthy_verdict_says_how_closely_ranks_were_compared() -> None:
    verdict = conclude(ended_well())
    assert (verdict.status, verdict.confidence) == (Status.HEALTHY, 0.95)
    (detail,) = told(verdict)
    assert detail.startswith("speed: 4 ranks were compared over 59 operations in 0.6 s; rank ")
    assert verdict.inputs.would_decide == []


def test_a_slow_rank_without_progress_is_not_called_healthy() -> None:
    known = ended_well(slow=2)
    assert conclude(known).culprits == [2]
    known = ended_well(slow=2)
    known.ranks[2].progress = None
    verdict = conclude(known)
    assert verdict.status is Status.INCONCLUSIVE
    assert verdict.inputs.would_decide == ["rank 2's progress"]


def test_a_rank_without_processor_time_is_not_called_healthy_without_a_word() -> None:
    known = ended_well()
    assert known.ranks[2].progress is not None
    known.ranks[2].progress.usage = []
    verdict = conclude(known)
    assert verdict.status is Status.HEALTHY and verdict.confidence < 0.95
    assert verdict.summary.endswith("Whether rank 2 slowed it down could not be seen.")
    assert told(verdict)[0].startswith("speed: 3 ranks were compared")
    assert verdict.evidence[1].rank == 2 and "processor time is missing" in told(verdict)[1]
    assert verdict.inputs.would_decide == ["rank 2's processor time"]
    assert verdict.advice == "Get rank 2's processor time."


def test_a_rank_with_a_part_of_its_own_is_compared_with_nobody() -> None:
    """The first stage of a pipeline, which alone begins with a send; its dump is there."""
    known = ended_well()
    for rank, view in known.ranks.items():
        assert view.progress is not None
        methods = ("send", "recv") if rank == 0 else ("recv", "send")
        first = view.progress.operations[0]
        view.progress.operations = [
            *(replace(first, method=method, group="p2p", group_seq=None) for method in methods),
            *view.progress.operations,
        ]
    verdict = conclude(known)
    assert verdict.summary.endswith("Whether rank 0 slowed it down could not be seen.")
    assert verdict.evidence[1].rank == 0 and "was compared with nobody" in told(verdict)[1]
    assert (verdict.inputs.would_decide, verdict.advice) == ([], "Nothing to do.")


@pytest.mark.parametrize("waited_ms", [0, 4])
def test_a_late_rank_of_which_nothing_tells_why_is_not_called_healthy_without_a_word(
    waited_ms: int,
) -> None:
    """On a crowded machine its peers wait for processors as well."""
    known = ended_well(slow=2)
    assert known.ranks[2].progress is not None and known.ranks[0].progress is not None
    usage = known.ranks[0].progress.usage
    for number, one in enumerate(usage):
        one.waited_ns = waited_ms * number * 60 * 20_000
    for view in known.ranks.values():
        assert view.progress is not None
        view.progress.usage = usage
    verdict = conclude(known)
    assert verdict.status is Status.HEALTHY and verdict.confidence < 0.95
    assert verdict.summary.endswith("Whether rank 2 slowed it down could not be seen.")
    (why,) = [one.detail for one in verdict.evidence if one.rank == 2]
    words, _, crowded = why.partition(": ")
    assert words == "its peers lost 44% of the time to it, and nothing recorded tells why"
    assert ("main threads wait for a processor" in crowded) is bool(waited_ms)
    wanted = "a run in which each rank has a processor of its own" if waited_ms else "a profile of"
    assert verdict.advice.startswith(f"Get {wanted}")


def test_a_job_too_short_to_compare_says_so() -> None:
    (detail,) = told(conclude(ended_well(steps=8)))
    assert detail == (
        "speed was not compared: 7 operations in 0.1 s are too few; "
        "comparing takes 12 or more, over 0.5 s or longer"
    )


def test_a_job_without_any_processor_time_is_not_compared() -> None:
    known = ended_well()
    for view in known.ranks.values():
        assert view.progress is not None
        view.progress.usage = []
        view.progress.cpu_first_at_ns = None
    verdict = conclude(known)
    assert len([one for one in told(verdict) if "processor time is missing" in one]) == 4
    assert not [one for one in told(verdict) if "were compared" in one]


@pytest.mark.parametrize("spread_ms", [0.0, 10.0])
def test_ranks_that_wait_for_each_other_by_turns_are_healthy_and_told(spread_ms: float) -> None:
    """Texts of other lengths on each rank, as no loader tells."""
    random = Random(1)
    simulated = Simulated.of({"0": (0, 1, 2, 3)})
    for _ in range(200):
        simulated.work(lambda _: 5.0 + spread_ms * random.random())
        simulated.meet("0")
    known = simulated.evidence()
    end = max(simulated.now.values())
    begin = known.ranks[0].progress.operations[0].entered_ns  # type: ignore[union-attr]
    for view in known.ranks.values():
        view.exit = Exit(Clock(begin + round(end * 1e6), 0), code=0)
        assert view.progress is not None
        view.progress.usage = [
            Usage(begin + round(end * 1e6 * i / 50), round(end * 1e4 * i), 0, 0) for i in range(51)
        ]
    verdict = conclude(known)
    assert verdict.status is Status.HEALTHY
    assert ("for each other by turns" in verdict.summary) == bool(spread_ms)
