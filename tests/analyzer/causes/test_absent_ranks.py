"""Ranks outside communication: what they do, told by one kind of evidence at a time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from views import AT, C10D, QUEUE, THREADING, ended, job, progress, sample, user, view, waiting

from hanglab.analyzer.causes.synchronization.early_finish import early_finish
from hanglab.analyzer.engine import conclude
from hanglab.analyzer.facts.case_facts import RankView
from hanglab.analyzer.facts.host import HostView
from hanglab.analyzer.matching.calls import Call
from hanglab.analyzer.verdict import Cause, Status
from hanglab.recorder.case.progress_records import OperationCall
from hanglab.recorder.case.reader import HostCase
from hanglab.recorder.case.records import (
    Clock,
    CodeLoop,
    CodeShape,
    ProgramEnd,
    SourceFunction,
    StackFrame,
)

LOADER = "/x/site-packages/torch/utils/data/dataloader.py"


def verdict_on(culprit_view, **kwargs):  # type: ignore[no-untyped-def]
    views = [culprit_view, *(waiting(r) for r in range(4) if r != culprit_view.rank)]
    return conclude(job(views, outside=[culprit_view.rank], **kwargs))


def test_a_sleeping_rank_is_merely_missing() -> None:
    verdict = verdict_on(view(2, user(31), wchan="hrtimer_nanosleep"))
    assert (verdict.status, verdict.cause) == (Status.HUNG, Cause.MISSING_RANK)
    assert verdict.culprits == [2]
    assert verdict.victims == [0, 1, 3]
    assert verdict.location is not None and verdict.location.line == 31
    assert verdict.collective is not None and verdict.collective.group == "default_pg"


@pytest.mark.parametrize(
    ("frames", "wchan", "cause"),
    [
        ([user(5)], "futex_do_wait", Cause.PYTHON_DEADLOCK),
        (
            [StackFrame("wait", THREADING, 1), StackFrame("get", QUEUE, 2), user(5)],
            "futex_do_wait",
            Cause.PYTHON_DEADLOCK,
        ),
        ([StackFrame("join", THREADING, 1), user(5)], "futex_do_wait", Cause.PYTHON_DEADLOCK),
        # an event may have a timeout that nobody sees
        ([StackFrame("wait", THREADING, 1), user(5)], "futex_do_wait", Cause.MISSING_RANK),
        ([user(5)], "unix_stream_read_generic", Cause.MISSING_RANK),
        ([StackFrame("_try_get_data", LOADER, 1), user(5)], "do_poll", Cause.LOADER_STUCK),
        ([StackFrame("_shutdown", THREADING, 1)], "futex_do_wait", Cause.TEARDOWN),
    ],
)
def test_what_the_stack_and_the_kernel_say_decides(
    frames: list[StackFrame], wchan: str, cause: Cause
) -> None:
    verdict = verdict_on(progress(view(1, *frames, wchan=wchan), step=3))
    assert verdict.cause is cause
    assert verdict.culprits == [1]


def test_a_lock_is_told_of_ranks_alone_whose_operations_are_recorded() -> None:
    """Without the recorder it may be the wait for an operation that no buffer of gloo's shows."""
    views = [view(rank, user(48, "exchange"), has_dump=False) for rank in range(3)]
    verdict = conclude(job(views))
    assert (verdict.status, verdict.culprits) == (Status.INCONCLUSIVE, [])
    assert "are in no operation that is known" in verdict.summary


def test_a_rank_that_is_seen_alone_may_wait_for_those_that_are_not() -> None:
    """A reduction of DistributedDataParallel's, say, of which its own process shows nothing."""
    backward = StackFrame("_engine_run_backward", "/x/site-packages/torch/autograd/graph.py", 1)
    facts = job([view(0, backward, user(9), has_dump=False)])
    assert conclude(facts).culprits == [0], "of a job of one it is all that can be stuck"
    facts.inputs.missing_ranks = [1, 2]
    verdict = conclude(facts)
    assert (verdict.status, verdict.culprits) == (Status.INCONCLUSIVE, [])


def test_a_spinning_rank_is_a_busy_loop_only_beyond_ten_pauses() -> None:
    spinning = view(3, user(9), state="R", wchan="0", cpu_share=0.99, gil=True)
    assert verdict_on(spinning).cause is Cause.BUSY_LOOP
    paused = view(3, user(9), state="R", wchan="0", cpu_share=0.99, gil=True)
    assert paused.movement is not None
    paused.movement.longest_pause_s = 1.0
    verdict = verdict_on(paused)
    assert verdict.cause is not Cause.BUSY_LOOP
    assert verdict.confidence < 0.5


@pytest.mark.parametrize(
    ("condition", "body", "told"),
    [
        ("flag.item() < wanted", "pass", True),
        ("not done.is_set()", "tries += 1", True),
        ("flag.item() < wanted", "step(batch)", False),
        ("engine.train_batch() > limit", "steps += 1", False),
        ("simulation.advance(step)", "time += step", False),
    ],
)
def test_a_condition_that_asks_for_a_state_is_polled(
    condition: str, body: str, told: bool, tmp_path: Path
) -> None:
    """Where the loop does nothing else; a busy core without the GIL may be one long call."""
    spinning = view(3, user(9), state="R", wchan="0", cpu_share=0.99)
    facts = job([spinning, *(waiting(rank) for rank in range(3))], outside=[3])
    lines = ["def train():", f"    while {condition}:", f"        {body}"]
    row = SourceFunction(user(9).file, "train", 8, 10, lines=lines, checksum="1")
    (tmp_path / "sources.json").write_bytes(msgspec.json.encode([row]))
    facts.hosts[spinning.host] = HostView(case=HostCase(tmp_path, []))
    verdict = conclude(facts)
    assert (verdict.cause is Cause.BUSY_LOOP) is told
    assert verdict.culprits == ([3] if told else [])
    assert told or "99% of a core" in verdict.summary


def test_a_rank_that_holds_the_gil_and_does_not_answer() -> None:
    verdict = verdict_on(view(1, user(9), wchan="hrtimer_nanosleep", gil=True, has_dump=False))
    assert verdict.cause is Cause.GIL_HELD


def test_a_loader_worker_s_own_line_is_the_place() -> None:
    rank = view(1, StackFrame("_try_get_data", LOADER, 1), user(5), wchan="do_poll")
    worker = StackFrame("_worker_loop", "/x/site-packages/torch/utils/data/_utils/worker.py", 300)
    rank.stacks.append(
        sample(900, user(77, "__getitem__", "/home/me/data.py"), worker, user(5), kind="worker")
    )
    verdict = verdict_on(rank)
    assert verdict.cause is Cause.LOADER_STUCK
    assert verdict.location is not None and verdict.location.line == 77


@pytest.mark.parametrize(
    ("away_s", "ahead_s", "cause"),
    [
        (4.0, 0.0, Cause.RANK0_WORK),
        (2.0, 0.0, None),
        # its clock is ahead of its peers', so what it noted is older than it looks
        (2.0, 2.0, Cause.RANK0_WORK),
        (4.0, -2.0, None),
    ],
)
def test_work_of_one_rank_is_told_only_after_its_peers_have_waited(
    away_s: float, ahead_s: float, cause: Cause | None
) -> None:
    """A capture asked for in the middle of a step finds some rank outside, too."""
    worker = progress(view(0, user(31), state="R", wchan="0", quiet_s=0.1), 3)
    second = 1_000_000_000
    worker.clock_ahead_ns = round(ahead_s * second)
    captured = 1_000 * second
    assert worker.progress is not None
    left = captured - round(away_s * second)
    # One that was entered earlier ended last.
    worker.progress.operations = [
        OperationCall(0, "allreduce", "0", left - 9 * second, left - 8 * second, left, left),
        OperationCall(1, "allreduce", "0", left - 7 * second, left - 6 * second),
    ]
    views = [worker, *(waiting(r) for r in (1, 2, 3))]
    known = job(views, outside=[0], trigger="request")
    assert known.job is not None and known.job.trigger is not None
    at = Clock(captured, captured)
    known.job.trigger = msgspec.structs.replace(known.job.trigger, at=at)
    verdict = conclude(known)
    assert verdict.cause is cause
    if cause is not None:
        assert (verdict.status, verdict.culprits, verdict.victims) == (Status.SLOW, [0], [1, 2, 3])
        assert verdict.location is not None and verdict.location.line == 31
    else:
        assert verdict.culprits == []


def with_loops(v: RankView, counter: int | None, epochs: Sequence[int | None]) -> RankView:
    """Knows its counter in the loop of lines 15 to 25, and in one around it if ``epochs``."""
    around = [CodeLoop(12, 35, epoch) for epoch in epochs]
    loops = [*around, CodeLoop(15, 25, counter)]
    v.shapes = [CodeShape("/home/me/train.py", "train", 10, 40, loops)]
    return v


def in_loop(rank: int, line: int, counter: int | None, *epochs: int | None) -> RankView:
    return with_loops(waiting(rank, line), counter, epochs)


def past_loop(rank: int, counter: int | None, *epochs: int | None) -> RankView:
    return with_loops(view(rank, user(30), wchan="do_poll"), counter, epochs)


@pytest.mark.parametrize(
    ("counters", "steps", "cause"),
    [
        ((3, 5), (None, None), Cause.UNEVEN_INPUTS),
        ((5, 5), (None, None), Cause.SKIPPED_COLLECTIVE),
        ((None, None), (6, 9), Cause.UNEVEN_INPUTS),
        ((None, None), (9, 9), Cause.SKIPPED_COLLECTIVE),
    ],
)
def test_a_rank_behind_its_peers_loop(
    counters: tuple[int | None, int | None], steps: tuple[int | None, int | None], cause: Cause
) -> None:
    views = [past_loop(0, counters[0]), *(in_loop(r, 20, counters[1]) for r in (1, 2, 3))]
    if steps[0] is not None and steps[1] is not None:
        views = [progress(views[0], steps[0]), *(progress(v, steps[1]) for v in views[1:])]
    known = job(views, outside=[0])
    # by its dump, rank 0 has entered fewer operations
    known.__dict__["highest_entered"] = {"0": {0: 6, 1: 7, 2: 7, 3: 7}}
    verdict = conclude(known)
    assert (verdict.cause, verdict.culprits) == (cause, [0])


@pytest.mark.parametrize(
    ("counter", "epochs", "cause"),
    [
        (3, (2, 2), Cause.UNEVEN_INPUTS),
        (5, (2, 2), Cause.SKIPPED_COLLECTIVE),
        # a round behind, it comes to the loop once more
        (9, (2, 3), Cause.MISSING_RANK),
        (3, (2, 3), Cause.MISSING_RANK),
        # nor do counters of two rounds tell how many operations it left out
        (3, (3, 2), Cause.MISSING_RANK),
        (3, (None, None), Cause.MISSING_RANK),
    ],
)
def test_a_loop_in_another_is_left_only_in_the_same_round_of_that(
    counter: int, epochs: tuple[int | None, int | None], cause: Cause
) -> None:
    mine, theirs = epochs
    views = [past_loop(0, counter, mine), *(in_loop(r, 20, 5, theirs) for r in (1, 2, 3))]
    # Steps go on from round to round, so that who is a round behind did fewer of them.
    views = [progress(v, 40 + v.rank) for v in views] if mine != theirs else views
    known = job(views, outside=[0])
    known.__dict__["highest_entered"] = {"0": {0: 6, 1: 7, 2: 7, 3: 7}}
    verdict = conclude(known)
    assert (verdict.cause, verdict.culprits) == (cause, [0])


def test_two_that_wait_between_the_rounds_are_not_accused_by_one_that_went_on() -> None:
    """Rank 1 left out what the others wait for by the store, and is in the next round."""
    known = job([past_loop(0, 9, 2), in_loop(1, 20, 0, 3), past_loop(2, 9, 2)], outside=[0, 2])
    known.__dict__["highest_entered"] = {"0": {0: 30, 1: 31, 2: 30}}
    verdict = conclude(known)
    assert (verdict.status, verdict.culprits) == (Status.INCONCLUSIVE, [])
    assert "ranks 0 and 2 are in no operation that is known" in verdict.summary


def test_two_that_did_as_many_steps_are_not_accused_by_one_with_an_operation_too_many() -> None:
    known = job([past_loop(0, 9), in_loop(1, 24, 9), past_loop(2, 9)], outside=[0, 2])
    known.__dict__["highest_entered"] = {"0": {0: 30, 1: 31, 2: 30}}
    verdict = conclude(known)
    assert (verdict.status, verdict.culprits) == (Status.INCONCLUSIVE, [])


def test_two_with_fewer_steps_are_compared_with_those_still_in_the_loop() -> None:
    views = [*(past_loop(r, 3) for r in (0, 1)), *(in_loop(r, 20, 5) for r in (2, 3))]
    known = job(views, outside=[0, 1])
    known.__dict__["highest_entered"] = {"0": {0: 6, 1: 6, 2: 7, 3: 7}}
    verdict = conclude(known)
    assert (verdict.cause, verdict.culprits) == (Cause.UNEVEN_INPUTS, [0, 1])
    assert "loop counter 3, its peers' 5" in verdict.summary


def test_a_rank_still_inside_the_loop_has_not_left_it() -> None:
    inside = view(0, user(24), wchan="do_poll")
    known = job([inside, *(in_loop(r, 20, 5) for r in (1, 2, 3))], outside=[0])
    known.__dict__["highest_entered"] = {"0": {0: 6, 1: 7, 2: 7, 3: 7}}
    assert conclude(known).cause is Cause.MISSING_RANK


def test_a_stack_inside_communication_contradicts_a_dump_that_says_outside() -> None:
    verdict = verdict_on(view(1, StackFrame("all_reduce", C10D, 9), user(20)))
    assert verdict.status is Status.INCONCLUSIVE
    assert verdict.culprits == []


def test_everybody_inside_is_not_blamed_on_anybody() -> None:
    verdict = conclude(job([waiting(r) for r in range(4)]))
    assert verdict.status is Status.INCONCLUSIVE
    assert verdict.culprits == []


def test_a_rank_that_rests_when_all_others_have_ended_well_is_not_accused() -> None:
    resting = view(3, user(31), wchan="hrtimer_nanosleep")
    verdict = conclude(job([*(ended(view(rank)) for rank in range(3)), resting]))
    assert verdict.status is Status.INCONCLUSIVE
    assert verdict.culprits == []


def test_a_rank_that_waits_for_ever_is_stuck_also_when_all_others_have_ended_well() -> None:
    waits = view(3, StackFrame("join", THREADING, 1), user(5), wchan="futex_do_wait")
    verdict = conclude(job([*(ended(view(rank)) for rank in range(3)), waits]))
    assert (verdict.cause, verdict.culprits) == (Cause.PYTHON_DEADLOCK, [3])


def test_a_rank_is_missing_where_one_of_the_others_failed() -> None:
    resting = view(3, user(31), wchan="hrtimer_nanosleep")
    others = [ended(view(0)), ended(view(1)), ended(view(2), code=None)]
    verdict = conclude(job([*others, resting]))
    assert (verdict.cause, verdict.culprits) == (Cause.MISSING_RANK, [3])


def test_a_rank_that_ended_early_is_shown_with_the_call_that_ended_it() -> None:
    early = ended(view(2))
    early.program_ends = [
        ProgramEnd(Clock(900, 900), "sys.exit", 0, user(31)),
        ProgramEnd(AT, "end"),
    ]
    known = job([early, *(waiting(rank) for rank in (0, 1, 3))], outside=[2])
    # The others have gone one operation further.
    known.highest_entered = {"0": {0: 7, 1: 7, 2: 6, 3: 7}}
    (finding,) = [proposal.finding for proposal in early_finish(known)]
    assert finding.culprits == [2]
    assert finding.location is not None and finding.location.line == 31
    assert "left by sys.exit(0) at train.py:31" in finding.summary


def away(rank: int) -> RankView:
    """In a system call that no rule knows."""
    return view(rank, user(40, "prepare"), wchan="locks_lock_inode_wait")


def test_many_who_stay_away_for_no_known_reason_are_not_accused_by_few() -> None:
    views = [waiting(0), *(away(rank) for rank in (1, 2, 3))]
    verdict = conclude(job(views, outside=[1, 2, 3]))
    assert (verdict.status, verdict.culprits) == (Status.INCONCLUSIVE, [])
    assert "ranks 1-3 are in no operation that is known" in verdict.summary
    assert any(e.rank == 2 and "train.py:40 (prepare)" in e.detail for e in verdict.evidence)
    assert "who holds" in verdict.advice


def test_most_of_a_job_does_not_work_alone_and_is_not_healthy_while_one_waits() -> None:
    """They ask for a lock again and again, which counts as movement; who has it waits for them."""
    asking = [view(rank, user(36), wchan="0", quiet_s=0.1) for rank in (1, 2)]
    verdict = conclude(job([waiting(0), *asking], outside=[1, 2], trigger="request"))
    assert (verdict.status, verdict.culprits) == (Status.INCONCLUSIVE, [])
    # One rank that works while all others wait is told.
    alone = conclude(job([waiting(0), waiting(2), asking[0]], outside=[1], trigger="request"))
    assert (alone.cause, alone.culprits) == (Cause.RANK0_WORK, [1])


def test_as_many_as_wait_are() -> None:
    views = [waiting(0), waiting(1), *(away(rank) for rank in (2, 3))]
    verdict = conclude(job(views, outside=[2, 3]))
    assert (verdict.cause, verdict.culprits) == (Cause.MISSING_RANK, [2, 3])


def test_nobody_is_missed_where_nobody_waits() -> None:
    known = job([away(rank) for rank in range(4)])
    verdict = conclude(known)
    assert (verdict.status, verdict.culprits) == (Status.INCONCLUSIVE, [])
    assert "ranks 0-3 are in no operation that is known" in verdict.summary


def test_a_rank_that_waits_in_an_operation_is_not_said_to_be_in_none() -> None:
    """Torch's own threads are in it, so that its stack shows the line alone."""
    inside = view(1, user(30), wchan="hrtimer_nanosleep")
    known = job([waiting(0), inside, waiting(2)], outside=[1])
    known.graph.unfinished[1] = [Call(1, known.graph.groups[0], 26, "all_reduce")]
    verdict = conclude(known)
    assert (verdict.cause, verdict.culprits) == (Cause.MISSING_RANK, [1])
    assert "it waits meanwhile in all_reduce (default_pg, number 26)" in verdict.summary
    assert "in no operation" not in verdict.summary and "any collective" not in verdict.summary
