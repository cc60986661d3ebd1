"""Roots and consequences: who ended by a trouble of its own, and who only felt it."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from views import C10D, ended, job, progress, raised, user, view, waiting

from hanglab.analyzer.engine import conclude
from hanglab.analyzer.facts.case_facts import RankView
from hanglab.analyzer.facts.host import HostView
from hanglab.analyzer.graph.wait_for_graph import Sink, Wait, WaitKind
from hanglab.analyzer.matching.calls import Call
from hanglab.analyzer.verdict import Cause, Status
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case.progress_records import GroupCounter
from hanglab.recorder.case.reader import HostCase
from hanglab.recorder.case.records import (
    Clock,
    CodeLoop,
    CodeShape,
    Exit,
    ProgramEnd,
    StackFrame,
)

SECOND = 1_000_000_000
LOST = "[../third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]"


def lost(rank: int):  # type: ignore[no-untyped-def]
    return raised(
        view(rank), "RuntimeError", LOST, StackFrame("all_reduce", C10D, 1), user(20), at=2000
    )


@pytest.mark.parametrize(
    ("type_", "message", "cause"),
    [
        ("ValueError", "label 8 of 8 classes", Cause.EXCEPTION),
        ("OSError", "[Errno 28] No space left on device: '/data/x'", Cause.DISK_FULL),
        ("OSError", "[Errno 24] Too many open files", Cause.FD_EXHAUSTED),
        ("RuntimeError", "can't start new thread", Cause.PIDS_EXHAUSTED),
        (
            "RuntimeError",
            "DataLoader worker (pid(s) 77) exited unexpectedly",
            Cause.LOADER_WORKER_DIED,
        ),
        (
            "RuntimeError",
            "DataLoader worker (pid 5) is killed by signal: Killed.",
            Cause.LOADER_WORKER_DIED,
        ),
        ("torch.OutOfMemoryError", "CUDA out of memory. Tried to allocate", Cause.GPU_OOM),
        (
            "RuntimeError",
            "DataLoader worker (pid 7) is killed by signal: Bus error. It is possible "
            "that dataloader's workers are out of shared memory: insufficient shared memory (shm)",
            Cause.SHM_EXHAUSTED,
        ),
    ],
)
def test_the_first_error_that_is_nobody_else_s_names_the_cause(
    type_: str, message: str, cause: Cause
) -> None:
    culprit = raised(view(1), type_, message, user(14, "check"), user(40))
    verdict = conclude(job([culprit, lost(0), lost(2), lost(3)], trigger=None))
    assert (verdict.status, verdict.cause) == (Status.FAILED, cause)
    assert verdict.culprits == [1]
    assert verdict.victims == [0, 2, 3]
    assert verdict.location is not None and verdict.location.line == 14


@pytest.mark.parametrize(
    ("culprits", "told"),
    [
        ([1], "; its peers failed because it was gone."),
        ([0, 2], "; their peers failed because they were gone."),
        ([0, 1, 2], "label 8 of 8 classes at train.py:14 (check)."),
    ],
)
def test_peers_are_told_of_where_there_are_any(culprits: list[int], told: str) -> None:
    views = [
        raised(view(rank), "ValueError", "label 8 of 8 classes", user(14, "check"))
        if rank in culprits
        else lost(rank)
        for rank in range(3)
    ]
    verdict = conclude(job(views, trigger=None))
    assert verdict.culprits == culprits
    assert verdict.summary.endswith(told)


def test_a_killed_rank_crashed_and_has_no_line() -> None:
    killed = ended(view(2), code=None, signal=signal.SIGKILL)
    verdict = conclude(job([killed, lost(0), lost(1), lost(3)], trigger=None))
    assert (verdict.cause, verdict.culprits) == (Cause.CRASH, [2])
    assert verdict.location is None
    assert "want of memory" in verdict.advice and "core dump" not in verdict.advice


def test_a_rank_that_raised_before_a_launcher_ended_it_gets_the_advice_of_its_error() -> None:
    culprit = raised(view(1), "ValueError", "label 8 of 8 classes", user(14, "check"))
    verdict = conclude(
        job([ended(culprit, code=None, signal=signal.SIGTERM), lost(0), lost(2)], trigger=None)
    )
    assert (verdict.cause, verdict.culprits) == (Cause.EXCEPTION, [1])
    assert "traceback" in verdict.advice


def vanished(rank: int, at: int = 3000):  # type: ignore[no-untyped-def]
    v = ended(view(rank))
    v.exit = Exit(Clock(at, at), vanished=True)
    return v


def test_a_rank_that_vanished_before_its_peers_lost_it_is_named() -> None:
    verdict = conclude(job([vanished(2, at=500), lost(0), lost(1), lost(3)], trigger="exit"))
    assert (verdict.cause, verdict.culprits) == (Cause.CRASH, [2])
    assert "nobody told how" in verdict.summary


def test_ranks_that_vanish_after_one_that_failed_are_a_launcher_s_doing() -> None:
    culprit = raised(view(1), "ValueError", "label 8 of 8 classes", user(14, "check"), at=2000)
    verdict = conclude(job([culprit, *(vanished(r) for r in (0, 2, 3))], trigger="exit"))
    assert (verdict.cause, verdict.culprits) == (Cause.EXCEPTION, [1])


def test_ranks_that_vanish_together_are_nobody_s_fault() -> None:
    verdict = conclude(job([vanished(r) for r in range(4)], trigger="exit"))
    assert (verdict.status, verdict.culprits) == (Status.INCONCLUSIVE, [])


def test_errors_that_are_all_consequences_accuse_nobody() -> None:
    verdict = conclude(job([lost(r) for r in range(4)], trigger=None))
    assert verdict.status is Status.INCONCLUSIVE
    assert verdict.culprits == []
    told = {row.rank for row in verdict.evidence if "Connection closed by peer" in row.detail}
    assert told == {0, 1, 2, 3}


def test_an_exception_while_the_rest_hangs_is_hung() -> None:
    culprit = raised(view(0), "KeyError", "'x'", user(3))
    known = job([culprit, waiting(1), waiting(2)], outside=[0])
    verdict = conclude(known)
    assert (verdict.status, verdict.cause, verdict.culprits) == (
        Status.HUNG,
        Cause.EXCEPTION,
        [0],
    )


def test_a_swallowed_exception_is_found_on_stderr() -> None:
    culprit = view(1, user(50), wchan="do_poll")
    culprit.stderr = (
        "Traceback (most recent call last):\n"
        '  File "/home/me/train.py", line 44, in step\n'
        "    loss()\n"
        "ZeroDivisionError: division by zero\n"
    )
    verdict = conclude(job([culprit, waiting(0), waiting(2)], outside=[1]))
    assert (verdict.cause, verdict.culprits) == (Cause.EXCEPTION, [1])
    assert verdict.location is not None and verdict.location.line == 44


def test_a_rank_that_finished_early_left_the_rest_alone() -> None:
    known = job([ended(view(1)), lost(0), lost(2)], trigger=None)
    known.__dict__["highest_entered"] = {"0": {0: 9, 1: 6, 2: 9}}
    verdict = conclude(known)
    assert (verdict.status, verdict.cause, verdict.culprits) == (
        Status.FAILED,
        Cause.UNEVEN_INPUTS,
        [1],
    )
    assert verdict.confidence < 0.9
    assert [a.cause for a in verdict.alternatives] == [Cause.SKIPPED_COLLECTIVE]


@pytest.mark.parametrize(
    ("how", "function", "told"),
    [("os._exit", "<module>", True), ("sys.exit", "<module>", False), ("sys.exit", "train", True)],
)
def test_advice_for_a_rank_that_ended_itself_is_to_look_where(
    how: Any, function: str, told: bool
) -> None:
    """A program may come to its end by ``sys.exit(main())``."""
    left = ended(view(1))
    left.program_ends = [ProgramEnd(Clock(1, 1), how, 0, user(14, function))]
    if how == "sys.exit":
        left.program_ends.append(ProgramEnd(Clock(2, 2), "end", 0))
    known = job([left, lost(0), lost(2)], trigger=None)
    known.__dict__["highest_entered"] = {"0": {0: 9, 1: 6, 2: 9}}
    verdict = conclude(known)
    assert verdict.culprits == [1]
    assert ("see what leads there" in verdict.findings[0].advice) == told


@pytest.mark.parametrize(
    ("loops", "cause"),
    [([], Cause.SKIPPED_COLLECTIVE), ([CodeLoop(5, 20, None)], Cause.UNEVEN_INPUTS)],
)
def test_a_rank_that_finished_left_no_loop_where_its_peers_are_in_none(
    loops: list[CodeLoop], cause: Cause
) -> None:
    """A barrier behind the loops of all, that one rank leaves out."""
    peers = [raised(view(r), "RuntimeError", LOST, user(9)) for r in (0, 2)]
    for peer in peers:
        peer.shapes = [CodeShape("/home/me/train.py", "train", 1, 40, loops)]
    known = job([ended(view(1)), *peers], trigger=None)
    known.__dict__["highest_entered"] = {"0": {0: 9, 1: 8, 2: 9}}
    verdict = conclude(known)
    assert (verdict.cause, verdict.culprits) == (cause, [1])


@pytest.mark.parametrize(
    ("how", "counted_at", "early"),
    [("os._exit", 3, True), ("os._exit", 1, False), ("end", 3, False)],
)
def test_without_its_dump_the_counters_tell_that_a_rank_left_early(
    how: str, counted_at: int, early: bool
) -> None:
    gone, *peers = progress(ended(view(1)), 3), progress(lost(0), 5), progress(lost(2), 5)
    gone.program_ends = [ProgramEnd(Clock(2, 2), how, 0, user(9))]  # type: ignore[arg-type]
    for one, count in ((gone, 33), (peers[0], 39), (peers[1], 39)):
        assert one.progress is not None
        one.progress.counters = [GroupCounter(0, count, count)]
        one.progress.counters_at_ns = counted_at
    verdict = conclude(job([gone, *peers], trigger=None))
    assert (verdict.cause is Cause.UNEVEN_INPUTS) == early
    if early:
        assert verdict.culprits == [1] and "os._exit(0)" in verdict.summary
        assert verdict.location is not None and verdict.location.line == 9


@pytest.mark.parametrize(("left_at", "early"), [(0, True), (9 * SECOND, False)])
def test_a_rank_leaves_when_its_program_does_however_long_its_interpreter_ends(
    left_at: int, early: bool
) -> None:
    slow = ended(view(1))
    assert slow.exit is not None
    slow.exit.at = Clock(9 * SECOND, 9 * SECOND)
    slow.program_ends = [ProgramEnd(Clock(left_at, left_at), "end")]
    known = job([slow, lost(0), lost(2)], trigger=None)
    known.__dict__["highest_entered"] = {"0": {0: 9, 1: 6, 2: 9}}
    verdict = conclude(known)
    assert (verdict.cause is Cause.UNEVEN_INPUTS) == early


@pytest.mark.parametrize("behind", [False, True])
def test_a_thread_that_ends_its_process_ended_it_whatever_the_code(behind: bool) -> None:
    """Wherever its main thread was, which left no loop."""
    gone = progress(ended(view(1)), 5 - behind)
    gone.program_ends = [ProgramEnd(Clock(2, 2), "os._exit", 0, user(14), "guard")]
    verdict = conclude(job([gone, progress(lost(0), 5), progress(lost(2), 5)], trigger=None))
    assert (verdict.status, verdict.cause, verdict.culprits) == (Status.FAILED, Cause.CRASH, [1])
    assert "ended itself by os._exit(0) in its thread guard" in verdict.summary
    assert verdict.location is not None and verdict.location.line == 14


def test_a_code_that_a_line_gave_is_told_with_it() -> None:
    gone = progress(ended(view(1), 3), 5)
    gone.program_ends = [ProgramEnd(Clock(2, 2), "os._exit", 3, user(9))]
    verdict = conclude(job([gone, progress(lost(0), 5), progress(lost(2), 5)], trigger=None))
    assert (verdict.cause, verdict.culprits) == (Cause.CRASH, [1])
    assert "ended itself by os._exit(3)" in verdict.summary and "native" not in verdict.advice
    assert verdict.location is not None and verdict.location.line == 9


def test_all_ended_well_is_healthy() -> None:
    assert conclude(job([ended(view(r)) for r in range(3)], trigger=None)).status is Status.HEALTHY


def test_a_signal_past_the_script_is_no_crash_but_teardown() -> None:
    aborted = progress(ended(view(2), code=None, signal=signal.SIGABRT), 9)
    assert aborted.progress is not None
    aborted.progress.phase = "exiting"
    verdict = conclude(job([aborted, *(ended(view(r)) for r in (0, 1, 3))], trigger=None))
    assert (verdict.status, verdict.cause) == (Status.FAILED, Cause.TEARDOWN)
    assert verdict.culprits == [2]


def test_who_aborts_at_its_end_within_an_operation_is_a_victim_of_whoever_is_not_in_it() -> None:
    """Seen: a thread that saves waits for rank 2, which skipped it, while the scripts end."""
    facts = job([view(r) for r in range(4)], outside=[2], trigger=None)
    for rank, one in facts.ranks.items():
        progress(ended(one, 0) if rank == 2 else ended(one, None, signal.SIGABRT), 9)
        assert one.progress is not None
        one.progress.phase = "exiting"
    verdict = conclude(facts)
    assert verdict.cause is not Cause.TEARDOWN and verdict.culprits == [2]


def test_a_launcher_ends_the_others_of_a_rank_that_was_killed() -> None:
    killed = ended(view(0), code=None, signal=signal.SIGKILL)
    views = [killed, *(ended(view(r), code=None, signal=signal.SIGTERM) for r in (1, 2, 3))]
    verdict = conclude(job(views, trigger=None))
    assert (verdict.cause, verdict.culprits) == (Cause.CRASH, [0])


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_who_ended_all_ranks_at_once_is_none_of_them(number: int) -> None:
    """No rank sends itself SIGKILL; who came first within a second cannot be told."""
    views = [ended(view(rank), code=None, signal=number) for rank in range(4)]
    verdict = conclude(job(views, trigger=None))
    assert (verdict.status, verdict.culprits) == (Status.INCONCLUSIVE, [])
    assert f"All ranks were ended by {signal.Signals(number).name} within" in verdict.summary


def test_a_rank_that_was_killed_seconds_before_the_others_is_named() -> None:
    views = [ended(view(rank), code=None, signal=signal.SIGKILL) for rank in range(4)]
    for one in views[1:]:
        assert one.exit is not None
        at = one.exit.at
        one.exit.at = Clock(at.wall_ns + 3 * SECOND, at.mono_ns + 3 * SECOND)
    verdict = conclude(job(views, trigger=None))
    assert (verdict.cause, verdict.culprits) == (Cause.CRASH, [0])


def test_the_order_in_which_ends_are_noted_within_a_second_says_nothing() -> None:
    asked = ended(view(0), code=None, signal=signal.SIGTERM)
    failed = ended(view(1), code=7)
    assert asked.exit is not None
    assert failed.exit is not None
    at = failed.exit.at
    asked.exit.at = Clock(at.wall_ns - 400_000, at.mono_ns - 400_000)
    verdict = conclude(job([asked, failed], trigger=None))
    assert (verdict.cause, verdict.culprits) == (Cause.CRASH, [1])


def test_what_an_abort_threw_is_told() -> None:
    aborted = ended(view(1), code=None, signal=signal.SIGABRT)
    aborted.stderr = (
        "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  no room\n"
    )
    others = [ended(view(rank), code=1) for rank in (0, 2)]
    verdict = conclude(job([aborted, *others], trigger=None))
    assert any(e.rank == 1 and "SIGABRT (no room)" in e.detail for e in verdict.evidence)


def test_faulthandler_s_line_is_the_place_of_a_crash() -> None:
    crashed = ended(view(1), code=None, signal=signal.SIGSEGV)
    crashed.stderr = (
        "Fatal Python error: Segmentation fault\n\n"
        "Current thread 0x00007f0000000002 (most recent call first):\n"
        '  File "/home/me/train.py", line 9 in boom\n'
    )
    verdict = conclude(job([crashed, lost(0), lost(2)], trigger=None))
    assert (verdict.cause, verdict.culprits) == (Cause.CRASH, [1])
    assert verdict.location is not None and verdict.location.line == 9


TIMED_OUT = (
    "[../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] "
    "Timed out waiting 5000ms for recv operation to complete"
)


def gave_up(rank: int, at: int = 2000):  # type: ignore[no-untyped-def]
    frames = StackFrame("all_reduce", C10D, 1), user(20)
    return raised(view(rank), "RuntimeError", TIMED_OUT, *frames, at=at)


def sent(rank: int, at: int = 3000, number: int = signal.SIGTERM):  # type: ignore[no-untyped-def]
    v = ended(view(rank), code=None, signal=number)
    assert v.exit is not None
    v.exit.at = Clock(at, at)
    return v


def late_rank(views, rank: int):  # type: ignore[no-untyped-def]
    """Evidence in which the peers' unfinished operation shows who never came to it."""
    known = job(views, trigger="exit")
    (group,) = known.graph.groups
    calls = [Call(r, group, 7, "all_reduce") for r in known.ranks if r != rank]
    known.graph.waits = [Wait(call, WaitKind.NOT_ENTERED, (rank,)) for call in calls]
    victims = tuple(call.rank for call in calls)
    known.graph.sinks = [
        Sink(rank, Call(rank, group, 7, "all_reduce"), outside=True, victims=victims)
    ]
    return known


def test_who_is_ended_after_a_peer_gave_up_is_no_crash_and_the_late_rank_is_named() -> None:
    views = [gave_up(0), sent(1), sent(2), sent(3)]
    verdict = conclude(late_rank(views, 2))
    assert (verdict.status, verdict.cause) == (Status.FAILED, Cause.MISSING_RANK)
    assert verdict.culprits == [2]


def test_whom_a_launcher_ends_after_others_lost_their_peer_is_no_crash() -> None:
    known = job([lost(0), ended(view(1)), lost(2), sent(3)], trigger="exit")
    known.__dict__["highest_entered"] = {"0": {0: 9, 1: 8, 2: 9, 3: 9}}
    verdict = conclude(known)
    assert (verdict.cause, verdict.culprits) == (Cause.UNEVEN_INPUTS, [1])


def test_a_rank_that_is_ended_before_its_peers_lose_it_crashed() -> None:
    views = [lost(0), sent(1, at=1500), lost(2), lost(3)]
    for v in views:
        if v.exceptions and v.exit is not None:
            v.exit.at = Clock(5000, 5000)
    verdict = conclude(job(views, trigger="exit"))
    assert (verdict.cause, verdict.culprits) == (Cause.CRASH, [1])


@pytest.mark.parametrize(
    ("views", "asked", "culprits"),
    [
        # Its launcher tells which it has ended: all but the one that was ended from outside.
        ([sent(0), sent(1, at=1600), lost(2), sent(3, at=1500)], (0, 1), [3]),
        # And that it ended this one, though that was noted before the end of the one that failed.
        ([sent(0, at=2900), lost(1), sent(2)], (0, 2), []),
        ([sent(0, at=2900), lost(1), sent(2)], (2,), [0]),
    ],
)
def test_a_launcher_tells_whom_it_ended(
    tmp_path: Path, views: list[RankView], asked: tuple[int, ...], culprits: list[int]
) -> None:
    words = "W1130 17:57:24.562000 9 api.py:1028] Sending process {} closing signal SIGTERM\n"
    told = "".join(words.format(views[rank].pid) for rank in asked)
    (tmp_path / files.HOST_STDERR.name).write_text(told)
    for one in views:
        if one.exceptions and one.exit is not None:
            one.exit.at = Clock(3000, 3000)
    known = job(views, trigger="exit")
    known.hosts[views[0].host] = HostView(case=HostCase(tmp_path, []))
    assert conclude(known).culprits == culprits


def test_a_job_that_is_ended_from_outside_accuses_nobody() -> None:
    verdict = conclude(late_rank([sent(r) for r in range(4)], 2))
    assert verdict.status is Status.INCONCLUSIVE
    assert verdict.culprits == []


def test_a_node_that_is_ended_as_a_whole_is_what_its_peers_lost() -> None:
    views = [lost(0), lost(1), sent(2, at=1500), sent(3, at=1500)]
    for v in views:
        v.host = "a" if v.rank < 2 else "b"
        if v.exceptions and v.exit is not None:
            v.exit.at = Clock(5000, 5000)
    verdict = conclude(job(views, trigger="exit"))
    assert (verdict.cause, verdict.culprits) == (Cause.CRASH, [2, 3])


def test_what_a_rank_does_once_a_peer_has_failed_and_ended_is_a_consequence() -> None:
    first = raised(view(1), "ValueError", "bad label", user(14))
    handler = raised(view(2), "Preempted", "asked to leave", user(70, "on_signal"), at=2 * SECOND)
    silent = ended(view(3), code=143)
    assert silent.exit is not None
    silent.exit.at = Clock(3 * SECOND, 3 * SECOND)
    verdict = conclude(job([lost(0), first, handler, silent], trigger="exit"))
    assert (verdict.cause, verdict.culprits) == (Cause.EXCEPTION, [1])


def test_an_error_that_a_lost_connection_led_to_is_a_consequence() -> None:
    root = raised(view(1), "ValueError", "bad label", user(14))
    wrapped = raised(view(0), "TrainingFailed", "step 8", user(60, "fit"))
    wrapped.exceptions[0].because = [f"RuntimeError: {LOST}"]
    verdict = conclude(job([wrapped, root, lost(2)], trigger="exit"))
    assert verdict.culprits == [1]


def test_whoever_leaves_well_after_its_peers_gave_up_did_not_finish_early() -> None:
    asked = ended(view(3))
    assert asked.exit is not None
    asked.exit.at = Clock(4 * SECOND, 4 * SECOND)
    known = late_rank([gave_up(0), gave_up(1), sent(2, at=4 * SECOND), asked], 2)
    known.__dict__["highest_entered"] = {"0": {0: 9, 1: 9, 2: 8, 3: 8}}
    verdict = conclude(known)
    assert (verdict.cause, verdict.culprits) == (Cause.MISSING_RANK, [2])


def test_an_error_that_torch_passes_on_from_a_worker_is_told_where_it_was_raised() -> None:
    passed = (
        "Caught KeyError in DataLoader worker process 0.\n"
        "Original Traceback (most recent call last):\n"
        '  File "/x/site-packages/torch/utils/data/_utils/worker.py", line 374, in _worker_loop\n'
        "    data = fetcher.fetch(index)\n"
        '  File "/home/me/pictures.py", line 20, in __getitem__\n'
        "    return CLASSES[self.labels[i]]\n"
        "           ~~~~~~~^^^^^^^^^^^^^^^^\n"
        "KeyError: 'Bird'\n"
    )
    verdict = conclude(job([raised(view(1), "KeyError", passed, user(31)), lost(0)], trigger=None))
    assert (verdict.cause, verdict.culprits) == (Cause.EXCEPTION, [1])
    assert "KeyError: 'Bird' (in DataLoader worker process 0)" in verdict.summary
    assert verdict.location is not None
    assert (verdict.location.file, verdict.location.line) == ("/home/me/pictures.py", 20)


def test_the_error_that_another_one_was_raised_from_is_told() -> None:
    failed = raised(view(1), "RuntimeError", "no batch after 4 tries", user(29))
    failed.exceptions[0].because[:] = ["OSError: read again", "ValueError: token 256 of 256\nat 3"]
    verdict = conclude(job([lost(0), failed, lost(2)], trigger=None))
    assert (verdict.cause, verdict.culprits) == (Cause.EXCEPTION, [1])
    assert "RuntimeError: no batch after 4 tries, from ValueError: token 256 of 256" in (
        verdict.evidence[0].detail
    )
