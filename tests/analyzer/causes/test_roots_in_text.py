"""Roots and consequences in what ranks print: the root is accused, however much else is said."""

from __future__ import annotations

import signal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from views import C10D, ended, job, raised, user, view, waiting

from hanglab.analyzer.engine import conclude
from hanglab.analyzer.facts.case_facts import RankView
from hanglab.analyzer.facts.error_texts import ROWS, Kind
from hanglab.analyzer.facts.stderr_per_rank import separate_stderr
from hanglab.analyzer.verdict import Cause, Status
from hanglab.recorder.case.records import Clock, StackFrame

ILLEGAL = (
    "[rank{0}]:[E504 22:44:08.389636235 ProcessGroupNCCL.cpp:1896] [PG ID 0 PG GUID 0(default_pg) "
    "Rank {0}] Process group watchdog thread terminated with exception: CUDA error: an illegal "
    "memory access was encountered\n"
    "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
    "Exception raised from c10_cuda_check_implementation at /pytorch/c10/cuda/CUDAException.cpp:43 "
    "(most recent call first):\n"
    "frame #5: c10d::ProcessGroupNCCL::watchdogHandler() + 0x1da (0x7f83 in libtorch_cuda.so)\n"
    "terminate called after throwing an instance of 'c10::DistBackendError'\n"
)
ECC = "CUDA error: uncorrectable ECC error encountered\n"
TIMED_OUT = (
    "[rank{0}]:[E504 22:54:08.408271257 ProcessGroupNCCL.cpp:607] [Rank {0}] Watchdog caught "
    "collective operation timeout: WorkNCCL(SeqNum=1580, OpType=ALLREDUCE, NumelIn=466119168, "
    "NumelOut=466119168, Timeout(ms)=600000) ran for 600060 milliseconds before timing out.\n"
    "[rank{0}]:[E504 22:54:08.930 ProcessGroupNCCL.cpp:627] [Rank {0}] To avoid data "
    "inconsistency, we are taking the entire process down.\n"
)
WRAPPED = (
    "NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.hpp:268, unhandled cuda error "
    "(run with NCCL_DEBUG=INFO for details), NCCL version 2.21.5\n"
    "ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\n"
    "Cuda failure 700 'an illegal memory access was encountered'"
)
REMOTE = (
    "NCCL communicator was aborted on rank 0. Original reason for failure was: NCCL error: remote "
    "process exited or there was a network error, NCCL version 2.21.5\nncclRemoteError: A call "
    "failed possibly due to a network error or a remote process exiting prematurely."
)
SECOND = 1_000_000_000


def aborted(rank: int, text: str = "", at: int = 1_000) -> RankView:
    one = ended(view(rank), code=None, signal=signal.SIGABRT)
    assert one.exit is not None
    one.exit.at = Clock(at, at)
    one.stderr = text.format(rank)
    return one


@pytest.mark.parametrize("culprit", range(4))
@pytest.mark.parametrize(
    ("text", "cause"),
    [(ILLEGAL, Cause.CRASH), (TIMED_OUT + ILLEGAL, Cause.CRASH), (ECC, Cause.GPU_FAULT)],
    ids=["illegal access", "noted after a timeout", "ECC"],
)
def test_an_abort_by_the_watchdog_over_a_device_error_is_a_root(
    culprit: int, text: str, cause: Cause
) -> None:
    views = [aborted(r, text if r == culprit else TIMED_OUT) for r in range(4)]
    verdict = conclude(job(views, trigger="exit"))
    assert (verdict.status, verdict.cause) == (Status.FAILED, cause)
    assert verdict.culprits == [culprit] and verdict.confidence >= 0.95
    assert "CUDA error" in verdict.summary


def test_an_abort_by_the_watchdog_over_its_time_limit_is_a_consequence() -> None:
    verdict = conclude(job([aborted(r, TIMED_OUT) for r in range(4)], trigger="exit"))
    assert verdict.culprits == []


@pytest.mark.parametrize("culprit", [0, 2])
@pytest.mark.parametrize(
    ("message", "cause"),
    [
        (WRAPPED, Cause.EXCEPTION),
        (
            WRAPPED.replace("700 'an illegal memory access was encountered", "'misaligned address"),
            Cause.EXCEPTION,
        ),
        (
            WRAPPED.replace("700 'an illegal memory access was", "214 'uncorrectable ECC error"),
            Cause.GPU_FAULT,
        ),
    ],
)
def test_a_cuda_failure_that_nccl_wraps_is_that_rank_s(
    culprit: int, message: str, cause: Cause
) -> None:
    views = [
        raised(
            view(r),
            "torch.distributed.DistBackendError",
            message if r == culprit else REMOTE,
            StackFrame("all_reduce", C10D, 1),
            user(20 + r),
            at=1000 + r,
        )
        for r in range(3)
    ]
    verdict = conclude(job(views, trigger="exit"))
    assert (verdict.status, verdict.cause) == (Status.FAILED, cause)
    assert verdict.culprits == [culprit]
    assert verdict.location is not None and verdict.location.line == 20 + culprit
    assert "Cuda failure" in verdict.summary


def test_the_main_thread_knows_less_than_the_log() -> None:
    knows = raised(view(1), "torch.distributed.DistBackendError", REMOTE, user(30))
    knows.stderr = ILLEGAL.format(1)
    other = raised(view(0), "torch.distributed.DistBackendError", REMOTE, user(30))
    verdict = conclude(job([knows, other], trigger="exit"))
    assert verdict.culprits == [1] and verdict.location is not None


def test_who_was_ended_by_a_launcher_had_failed_all_the_same() -> None:
    """Its abort waited for a dump until the launcher ended it after its peers."""
    root = aborted(3, ILLEGAL, at=9 * SECOND)
    assert root.exit is not None
    root.exit.signal = int(signal.SIGTERM)
    views = [aborted(r, TIMED_OUT, at=5 * SECOND) for r in range(3)]
    verdict = conclude(job([*views, root], trigger="exit"))
    assert verdict.culprits == [3]


def test_a_rank_that_lives_with_a_device_error_is_why_its_peers_wait() -> None:
    broken = waiting(2)
    broken.stderr = (
        "node0:7400:7642 [1] include/alloc.h:125 NCCL WARN Cuda failure 700 'an illegal memory "
        "access was encountered'\n"
    )
    verdict = conclude(job([waiting(0), waiting(1), broken, waiting(3)]))
    assert (verdict.status, verdict.culprits) == (Status.HUNG, [2])


@pytest.mark.parametrize(("later_s", "culprits"), [(30, [1]), (0, [1, 2])])
def test_of_device_errors_the_earliest_is_the_root(later_s: int, culprits: list[int]) -> None:
    first = aborted(1, ILLEGAL, at=60 * SECOND)
    later = ILLEGAL.replace("22:44:08", f"22:44:{8 + later_s:02d}")
    second = aborted(2, later, at=60 * SECOND)
    for one in (first, second):
        assert one.exit is not None
        one.exit.at = Clock(1_746_398_690 * SECOND, 0)  # 22:44:50 of that day
    verdict = conclude(job([aborted(0, TIMED_OUT, at=1), first, second], trigger="exit"))
    assert verdict.culprits == culprits


def test_in_a_log_of_all_ranks_the_line_s_own_name_tells_whose_it_is() -> None:
    unnamed = (
        "terminate called after throwing an instance of 'c10::DistBackendError'\n"
        "  what():  [PG ID 0 PG GUID 0(default_pg) Rank 2] Process group watchdog thread "
        "terminated with exception: CUDA error: an illegal memory access was encountered\n"
    )
    for text in (ILLEGAL.format(2), unnamed):
        views = [aborted(r) for r in range(4)]
        common = "".join(TIMED_OUT.format(r) for r in (0, 1, 3)) + text
        for one in views:
            one.host, one.stderr = "a", common
        separate_stderr(views, {"a": common})
        assert conclude(job(views, trigger="exit")).culprits == [2]


@pytest.mark.parametrize(("started_s", "culprits"), [(-600, [1]), (-20, [])])
def test_the_log_of_an_earlier_attempt_is_not_this_one_s(
    started_s: int, culprits: list[int]
) -> None:
    """A rank that was started again writes behind what the one before it wrote."""
    ended_ns = 1_746_398_690 * SECOND  # 22:44:50 of that day
    again = aborted(1, ILLEGAL + TIMED_OUT.replace("22:54:08", "22:44:49"), at=ended_ns)
    peer = aborted(0, TIMED_OUT, at=ended_ns)
    assert again.process is not None
    again.process.attempt = 1
    again.process.started = Clock(ended_ns + started_s * SECOND, 0)
    assert conclude(job([peer, again], trigger="exit")).culprits == culprits


NOT_CONNECTED = (
    "[enforce fail at /pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:801] state_ >= "
    "CONNECTED. 1 vs 4. Pair is not connected ([127.0.0.1]:47495$0 <--> [none])"
)


@pytest.mark.parametrize("culprits", [[1], [0, 1, 2]])
def test_a_send_to_oneself_is_that_line(culprits: list[int]) -> None:
    lost = "[/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:1"
    views = [
        raised(
            view(r),
            "RuntimeError",
            NOT_CONNECTED if r in culprits else lost,
            StackFrame("isend", C10D, 2000),
            user(33, "exchange"),
        )
        for r in range(3)
    ]
    verdict = conclude(job(views, trigger="exit"))
    assert (verdict.status, verdict.cause) == (Status.FAILED, Cause.EXCEPTION)
    assert verdict.culprits == culprits
    assert verdict.location is not None and verdict.location.line == 33


def test_what_led_to_a_printed_traceback_is_read_too() -> None:
    """A checkpoint that fails because communication did is a consequence of that."""
    victim = ended(view(0), code=1)
    victim.stderr = (
        "Traceback (most recent call last):\n"
        '  File "/home/me/train.py", line 4, in step\n'
        "RuntimeError: [/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]\n"
        "\nDuring handling of the above exception, another exception occurred:\n\n"
        "Traceback (most recent call last):\n"
        '  File "/home/me/train.py", line 9, in save\n'
        "KeyError: 'optimizer'\n"
    )
    root = raised(view(1), "ValueError", "bad label", user(14))
    assert conclude(job([victim, root], trigger="exit")).culprits == [1]


STICKY = [row.example for row in ROWS if row.sticky]
CONSEQUENCES = [row.example for row in ROWS if row.kind is Kind.CONSEQUENCE] + [TIMED_OUT, REMOTE]
NOISE = [
    "",
    "UserWarning: torch.range is deprecated",
    "frame #7: <unknown function> + 0x145c0 (0x7fa195ea25c0 in libtorch.so)",
    "Process group watchdog thread terminated with exception: ",
]
LINES = st.lists(st.sampled_from(CONSEQUENCES + NOISE), max_size=6)


@settings(max_examples=60, deadline=None)
@given(
    root=st.sampled_from(STICKY),
    culprit=st.integers(0, 3),
    before=LINES,
    after=LINES,
    others=st.lists(LINES, min_size=4, max_size=4),
    died=st.sampled_from([(None, int(signal.SIGABRT)), (1, None), (None, int(signal.SIGTERM))]),
)
def test_more_words_never_weaken_or_move_a_root(
    root: str,
    culprit: int,
    before: list[str],
    after: list[str],
    others: list[list[str]],
    died: tuple[int | None, int | None],
) -> None:
    """Lines added to the root's log leave the verdict; consequences of others do not move it."""

    def verdict(more: bool):  # type: ignore[no-untyped-def]
        views = []
        for rank in range(4):
            lines = others[rank] if more else []
            if rank == culprit:
                lines = [*before, root, *after] if more else [root]
            one = ended(view(rank), code=None, signal=signal.SIGABRT)
            one.stderr = "".join(f"{line}\n" for line in lines) if lines else TIMED_OUT
            if rank == culprit and one.exit is not None:
                one.exit.code, one.exit.signal = died
            views.append(one)
        for rank in range(4):
            if rank != culprit and not any(line in CONSEQUENCES for line in others[rank]):
                views[rank].stderr += TIMED_OUT
        return conclude(job(views, trigger="exit"))

    short, long = verdict(False), verdict(True)
    assert short.culprits == long.culprits == [culprit]
    assert (short.cause, short.status) == (long.cause, long.status)
    assert long.confidence >= short.confidence


SAVING_FAILED = (
    "CheckpointException ranks:dict_keys([{0}])\n"
    "Traceback (most recent call last): (RANK {0})\n"
    '  File "/v/site-packages/torch/distributed/checkpoint/utils.py", line 241, in all_reduce\n'
    "    local_data = map_fun()\n"
    "                 ^^^^^^^^^\n"
    '  File "/srv/train.py", line 12, in write_data\n'
    '    raise OSError(28, "No space left on device")\n'
    "OSError: [Errno 28] No space left on device\n"
)


@pytest.mark.parametrize("printed", [False, True], ids=["caught", "printed"])
@pytest.mark.parametrize("culprit", [0, 2])
def test_an_error_that_every_rank_raises_over_one_of_them_is_that_one_s(
    culprit: int, printed: bool
) -> None:
    """Seen: a checkpoint that one rank failed to write; all raise what lists its traceback."""
    text = SAVING_FAILED.format(culprit)
    type_ = "torch.distributed.checkpoint.api.CheckpointException"
    views = []
    for rank in range(4):
        one = ended(view(rank), code=1)
        if printed:
            frame = '  File "/srv/train.py", line 26, in <module>\n'
            head = f"Traceback (most recent call last):\n{frame}    fut.result()\n"
            one.stderr = f"{head}{type_}: {text}"
        else:
            raised(one, type_, text, user(26), at=1_000 + rank)
        views.append(one)
    verdict = conclude(job(views, trigger="exit"))
    (finding,) = verdict.findings
    assert (verdict.status, finding.cause) == (Status.FAILED, Cause.DISK_FULL)
    assert finding.culprits == [culprit]
    assert finding.location is not None and finding.location.line == 12
    assert "OSError: [Errno 28] No space left on device" in finding.summary


ABORTED = "NCCL communicator was aborted on rank {0}."


def _aborted_communicator(rank: int, message: str) -> RankView:
    frames = StackFrame("all_reduce", C10D, 1), user(35)
    return raised(view(rank), "torch.distributed.DistBackendError", message, *frames)


@pytest.mark.parametrize("culprit", range(3))
def test_an_abort_that_nothing_went_before_is_the_rank_s_own(culprit: int) -> None:
    """Its peers live, and none had lost its patience."""
    views = [
        _aborted_communicator(r, ABORTED.format(r)) if r == culprit else waiting(r)
        for r in range(3)
    ]
    verdict = conclude(job(views, trigger="exit"))
    assert (verdict.cause, verdict.culprits) == (Cause.EXCEPTION, [culprit])
    assert verdict.location is not None and verdict.location.line == 35


@pytest.mark.parametrize(
    ("message", "stderr"),
    [(REMOTE, ""), (ABORTED.format(0), TIMED_OUT.format(0)), (ABORTED.format(0), "")],
    ids=["a reason is given", "a time limit had struck", "a peer has ended"],
)
def test_an_abort_that_something_went_before_accuses_nobody(message: str, stderr: str) -> None:
    first = _aborted_communicator(0, message)
    first.stderr = stderr
    others = [waiting(1), waiting(2)]
    if not stderr and message != REMOTE:
        others = [ended(view(r)) for r in (1, 2)]
    assert conclude(job([first, *others], trigger="exit")).culprits == []


OWN_ERRORS = [
    ("requests.exceptions.ConnectionError", "('Connection aborted.', 'Connection reset by peer')"),
    ("BrokenPipeError", "[Errno 32] Broken pipe"),
    ("ConnectionRefusedError", "[Errno 111] Connection refused"),
]


@pytest.mark.parametrize(("type_", "message"), OWN_ERRORS)
@pytest.mark.parametrize("first", [True, False])
def test_who_loses_a_connection_before_anybody_ended_lost_no_rank(
    type_: str, message: str, first: bool
) -> None:
    """Behind the end of a peer it may have been a connection to that."""
    later = 60 * 10**9
    views = []
    for rank in range(4):
        at = 1_000 if (rank == 2) == first else later
        one = ended(view(rank), code=1)
        if rank == 2:
            raised(one, type_, message, user(12), at=at)
        else:
            raised(one, "RuntimeError", "[pair.cc:547] Connection closed by peer", user(26), at=at)
        views.append(one)
    verdict = conclude(job(views, trigger="exit"))
    assert verdict.culprits == ([2] if first else [])
    if first:
        assert verdict.cause is Cause.EXCEPTION


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("h:4003:4503 [3] alloc.h:99 NCCL WARN Cuda failure 'out of memory'", Cause.GPU_OOM),
        (
            "h:4003:4503 [3] misc/shmutils.cc:132 NCCL WARN Error while creating shared memory "
            "segment /dev/shm/nccl-WU88OE (size 9637888), error: No space left on device (28)",
            Cause.SHM_EXHAUSTED,
        ),
    ],
)
def test_what_nccl_warns_of_is_why_it_failed_in_whatever_it_raises(line: str, cause: Cause) -> None:
    error = "torch.distributed.DistBackendError: NCCL error in: x.cpp:1, {}\nLast error:\n{}\n"
    views = []
    for rank in range(4):
        words = ("internal error", "recv failed") if rank == 3 else ("remote process exited", "x")
        one = ended(view(rank), code=1)
        one.stderr = (
            'Traceback (most recent call last):\n  File "/srv/train.py", line 9, in step\n'
            f"    dist.all_reduce(t)\n{error.format(*words)}"
        )
        views.append(one)
    views[3].stderr = f"{line}\n{views[3].stderr}"
    verdict = conclude(job(views, trigger="exit"))
    assert (verdict.cause, verdict.culprits) == (cause, [3])


def test_an_exception_of_c_that_ends_a_process_says_why() -> None:
    one = ended(view(1), code=None, signal=signal.SIGABRT)
    one.stderr = (
        "terminate called after throwing an instance of 'c10::Error'\n"
        "  what():  CUDA error: out of memory\n"
    )
    verdict = conclude(job([view(0), one], trigger="exit"))
    assert (verdict.cause, verdict.culprits) == (Cause.GPU_OOM, [1])


def test_an_interrupted_rank_did_nothing_by_itself() -> None:
    views = []
    for rank in range(4):
        one = ended(view(rank), code=1)
        one.stderr = (
            'Traceback (most recent call last):\n  File "/srv/train.py", line 9, in step\n'
            "    batch = queue.get()\nKeyboardInterrupt\n"
        )
        views.append(one)
    assert conclude(job(views, trigger="exit")).culprits == []
