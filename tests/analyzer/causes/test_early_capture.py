"""Jobs that somebody looks at before the recorder's threshold has passed."""

from __future__ import annotations

import msgspec
import pytest
from views import QUEUE, job, progress, user, view, waiting

from hanglab.analyzer.engine import conclude
from hanglab.analyzer.facts.case_facts import CaseFacts, RankView
from hanglab.analyzer.verdict import Cause, Status
from hanglab.recorder.case.records import StackFrame, ThreadStack

LOADER = "/x/site-packages/torch/utils/data/dataloader.py"


def looked_at(quiet_s: float, longest_pause_s: float) -> CaseFacts:
    views = [view(rank, quiet_s=quiet_s) for rank in range(3)]
    for one in views:
        assert one.movement is not None
        one.movement.longest_pause_s = longest_pause_s
    known = job(views, trigger="request")
    assert known.job is not None
    known.job.hang_after_s = 30.0
    return known


@pytest.mark.parametrize(("quiet_s", "longest_pause_s"), [(4.9, 0.1), (12.0, 1.3), (0.0, 0.0)])
def test_a_pause_of_a_usual_size_is_healthy(quiet_s: float, longest_pause_s: float) -> None:
    assert conclude(looked_at(quiet_s, longest_pause_s)).status is Status.HEALTHY


def test_a_rest_out_of_all_proportion_is_not_called_healthy() -> None:
    verdict = conclude(looked_at(15.0, 0.2))
    assert verdict.status is Status.INCONCLUSIVE and verdict.culprits == []
    assert "Nothing of the job had moved for 15.0 s" in verdict.summary
    assert "longest pause before was 0.2 s" in verdict.summary


def test_one_rank_that_moves_is_enough() -> None:
    known = looked_at(15.0, 0.2)
    assert known.ranks[1].movement is not None
    known.ranks[1].movement.quiet_s = 0.1
    assert conclude(known).status is Status.HEALTHY


def looked_at_while_one_is_away(quiet_s: float) -> CaseFacts:
    """Rank 1 sleeps while its peers wait for it, and has not moved for as long as they."""
    views = [waiting(0), view(1, user(31), wchan="hrtimer_nanosleep"), waiting(2)]
    for one in views:
        assert one.movement is not None
        one.movement.quiet_s = quiet_s
        one.movement.longest_pause_s = 0.2
    known = job(views, outside=[1], trigger="interrupt")
    assert known.job is not None
    known.job.hang_after_s = 30.0
    return known


def test_a_rank_that_moved_just_now_is_at_work() -> None:
    verdict = conclude(looked_at_while_one_is_away(0.5))
    assert (verdict.status, verdict.cause) == (Status.SLOW, Cause.RANK0_WORK)
    assert verdict.culprits == [1]


def test_a_rank_at_rest_like_all_the_others_is_not_said_to_work() -> None:
    verdict = conclude(looked_at_while_one_is_away(12.0))
    assert (verdict.status, verdict.cause, verdict.culprits) == (Status.INCONCLUSIVE, None, [])
    assert "Nothing of the job had moved for 12.0 s" in verdict.summary
    assert verdict.inputs.would_decide == [
        "a capture of the job when nothing of it has moved for 30 s"
    ]
    stands = {one.rank: one.detail for one in verdict.evidence if one.source == "stack"}
    assert stands[1].startswith("is at train.py:31")


def early(away: RankView, quiet_s: float = 3.6, longest_pause_s: float = 0.2) -> CaseFacts:
    """Rank 1 is away from its peers, which wait for it; all have rested for as long as it."""
    views = [waiting(0), away, waiting(2)]
    for one in views:
        assert one.movement is not None
        one.movement.quiet_s = quiet_s
        one.movement.longest_pause_s = longest_pause_s
    known = job(views, outside=[1], trigger="interrupt")
    assert known.job is not None
    known.job.hang_after_s = 30.0
    return known


SLEEPS = view(1, user(31), wchan="hrtimer_nanosleep")
COMPUTES = view(1, user(31), state="R", wchan="0", cpu_share=1.0)
SPINS = view(1, user(31), state="R", wchan="0", cpu_share=1.0, gil=True)
LOADS = view(1, StackFrame("_try_get_data", LOADER, 1), user(31), wchan="do_poll")
HOLDS_THE_GIL = view(1, user(31), wchan="hrtimer_nanosleep", gil=True, has_dump=False)


@pytest.mark.parametrize("quiet_s", [2.1, 3.6, 8.0, 29.0])
@pytest.mark.parametrize("away", [SLEEPS, COMPUTES, SPINS, LOADS, HOLDS_THE_GIL])
def test_a_rank_that_keeps_others_waiting_at_rest_is_named_but_not_accused(
    away: RankView, quiet_s: float
) -> None:
    verdict = conclude(early(away, quiet_s))
    assert (verdict.status, verdict.culprits) == (Status.INCONCLUSIVE, [])
    assert f"had moved for {quiet_s:.1f} s" in verdict.summary
    assert "wait in all_reduce number 7 for rank 1, which is at train.py:31" in verdict.summary
    assert verdict.inputs.would_decide == [
        "a capture of the job when nothing of it has moved for 30 s"
    ]


def test_its_peers_may_still_move() -> None:
    known = early(SLEEPS)
    assert known.ranks[2].movement is not None
    known.ranks[2].movement.quiet_s = 0.1
    verdict = conclude(known)
    assert (verdict.status, verdict.culprits) == (Status.INCONCLUSIVE, [])
    assert verdict.summary.startswith("Rank 1 had not moved for 3.6 s")


@pytest.mark.parametrize("away", [SLEEPS, COMPUTES, LOADS, view(1, user(31))])
def test_a_pause_of_the_size_that_a_rank_is_used_to_is_healthy(away: RankView) -> None:
    assert conclude(early(away, 3.6, 2.0)).status is Status.HEALTHY


def test_work_that_has_moved_just_now_is_slow() -> None:
    known = early(SLEEPS)
    assert known.ranks[1].movement is not None
    known.ranks[1].movement.quiet_s = 0.4
    verdict = conclude(known)
    assert (verdict.status, verdict.cause) == (Status.SLOW, Cause.RANK0_WORK)


@pytest.mark.parametrize(
    ("waited_s", "pause_s", "slow"), [(91.0, 0.2, True), (20.0, 0.2, False), (91.0, 60.0, False)]
)
def test_input_that_moves_and_never_comes_is_not_called_healthy(
    waited_s: float, pause_s: float, slow: bool
) -> None:
    """A loader that polls a locked database for ever reads a few bytes each time."""
    known = early(view(1, StackFrame("_try_get_data", LOADER, 1), user(31)), waited_s, pause_s)
    mine = known.ranks[1].movement
    assert mine is not None
    mine.quiet_s, mine.longest_pause_s = 0.1, 0.1
    verdict = conclude(known)
    if slow:
        assert (verdict.status, verdict.cause) == (Status.SLOW, Cause.SLOW_INPUT)
        assert verdict.culprits == [1] and verdict.confidence <= 0.6
    else:
        assert verdict.status is Status.HEALTHY


IN_A_LOCK = progress(view(1, user(31)), step=3)
IN_A_QUEUE = view(1, StackFrame("get", QUEUE, 171), user(31))


@pytest.mark.parametrize("away", [IN_A_LOCK, IN_A_QUEUE])
def test_what_nothing_can_end_is_told_at_once_with_less_confidence(away: RankView) -> None:
    verdict = conclude(early(away))
    assert (verdict.status, verdict.cause) == (Status.HUNG, Cause.PYTHON_DEADLOCK)
    assert verdict.culprits == [1]
    known = early(away, quiet_s=30.0)
    assert known.job is not None and known.job.trigger is not None
    known.job.trigger = msgspec.structs.replace(known.job.trigger, kind="no_progress")
    late = conclude(known)
    assert (late.cause, late.culprits) == (verdict.cause, [1])
    assert verdict.confidence < late.confidence


def test_who_looks_the_moment_a_rank_waits_for_a_lock_meets_it_in_passing() -> None:
    known = early(IN_A_LOCK, 0.3)
    for one in known.ranks.values():
        progress(one, step=3)
    assert conclude(known).status is Status.HEALTHY


def test_a_thread_of_a_library_may_be_about_to_let_it_go() -> None:
    """A checkpoint that a thread of torch's writes, for one; nothing of it need be the user's."""
    away = view(1, user(31))
    writes = StackFrame("_save", "/x/site-packages/torch/serialization.py", 900)
    away.stacks[0].threads.append(ThreadStack(frames=[writes], os_thread_id=999))
    assert conclude(early(away)).status is Status.INCONCLUSIVE


def test_a_recorder_that_could_not_look_proves_no_movement() -> None:
    known = early(SLEEPS, quiet_s=1.0)
    assert known.ranks[1].movement is not None
    known.ranks[1].movement.rested_s = 6.0
    assert conclude(known).cause is not Cause.RANK0_WORK
    known.ranks[1].movement.rested_s = 0.0
    assert conclude(known).cause is Cause.RANK0_WORK
