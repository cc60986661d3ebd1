"""Folders of logs, alone and beside dumps: who is named, and who is not."""

from __future__ import annotations

import gzip
import signal
from pathlib import Path

import pytest
from log_texts import OBSERVED, RAISED, TABLE, named, timed_out, write_dump

from hanglab.analyzer.engine import analyze
from hanglab.analyzer.logs import files
from hanglab.analyzer.verdict import Cause, Status, Verdict


def judged(folder: Path, **texts: str) -> Verdict:
    """The verdict on a folder with these logs; in their names ``__`` stands for a slash."""
    for name, text in texts.items():
        path = folder / f"{name.replace('__', '/')}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return analyze(folder)


def found(verdict: Verdict) -> tuple[Status, Cause | None, list[int]]:
    return verdict.status, verdict.cause, verdict.culprits


@pytest.mark.parametrize(
    "texts",
    [
        {"slurm": f"step 1\n{named(2)}{TABLE.format(rank=2, local=2, code=1, pid=9)}"},
        {"rank0": "step 1\n", "rank2": f"step 1\n{RAISED}", "rank1": timed_out(1)},
        {f"none_x__attempt_0__{n}__stderr": RAISED if n == 2 else "step 1\n" for n in range(4)},
        {"mpi": "".join(f"[1,{r}]<stderr>:{line}" for r in (0, 2) for line in
                        (RAISED if r == 2 else "step 1\n").splitlines(True))},
        {"labels": "".join(f"{r}: {line}" for r in range(4) for line in
                           (RAISED if r == 2 else "step 1\n" * 4).splitlines(True))},
        {"hosts": "".join(f"worker-{r // 2}: {line}" for r in range(4) for line in
                          (named(2) if r == 2 else "step 1\n" * 4).splitlines(True))},
        {"tee": "".join(f"[default{r}]:[rank{r}]: {line}" for r in range(4) for line in
                        (RAISED if r == 2 else "step 1\n").splitlines(True))},
        # The table tells the rank, and the only traceback bears no name.
        {"all": f"{RAISED}{TABLE.format(rank=2, local=2, code=1, pid=9)}"},
        # The files of their peers name them.
        {f"pod-{n}": "step 1\n" + ("" if n == 2 else named(n, "warned\n"))
         + (RAISED if n == 2 else "") for n in range(4)},
    ],
    ids=["torch", "names", "torchrun", "mpi", "srun", "pdsh", "tee", "table", "others"],
)  # fmt: skip
def test_whose_traceback_it_is(tmp_path: Path, texts: dict[str, str]) -> None:
    verdict = judged(tmp_path, **texts)
    assert found(verdict) == (Status.FAILED, Cause.EXCEPTION, [2])
    assert "KeyError: 'labels'" in verdict.summary
    assert verdict.location is not None and verdict.location.line == 33


@pytest.mark.parametrize("local", [2, 5])
def test_a_rank_of_one_of_several_hosts_is_no_rank_of_the_job(tmp_path: Path, local: int) -> None:
    """Rank 2 of the host is told by its agent, and the table tells which of the job it is."""
    agent = f"failed (exitcode: -9) local_rank: {local} (pid: 615142) of binary: python\n"
    table = TABLE.format(rank=8 + local, local=local, code=-9, pid=615142)
    verdict = judged(tmp_path, node1=timed_out(0) + timed_out(9) + agent + table)
    assert found(verdict) == (Status.FAILED, Cause.CRASH, [8 + local])


@pytest.mark.parametrize(
    "texts",
    [
        {"node0": "step 1\n", "node1": RAISED},
        {"node_rank0": "step 1\n", "node_rank1": RAISED},
        {"a__local_rank_1": RAISED, "b__local_rank_1": "step 1\n"},
        {"pdsh": "".join(f"node{n}: {line}" for n in (0, 1) for line in
                         (RAISED if n else "step 1\n" * 4).splitlines(True))},
        {"srun": "".join(f"{n}: {line}" for n in (0, 1) for line in
                         ("torchrun --nnodes 2\n" * 4 + RAISED * n).splitlines(True))},
        {"train_0": "step 1\n", "train_1": RAISED},
    ],
)  # fmt: skip
def test_numbers_of_hosts_and_files_are_no_ranks(tmp_path: Path, texts: dict[str, str]) -> None:
    assert not judged(tmp_path, **texts).culprits


def test_prefixes_below_labels_of_hosts(tmp_path: Path) -> None:
    lines = [f"{h}: [default{n}]:[rank{4 * h + n}]: a\n" for h in (0, 1) for n in range(4)] * 4
    lines += [f"1: [default3]:[rank7]: {line}" for line in RAISED.splitlines(True)]
    assert judged(tmp_path, srun="".join(lines)).culprits == [7]


def test_processes_of_two_hosts_with_one_number(tmp_path: Path) -> None:
    joined = "n{h}:{pid}:99 [0] NCCL INFO ncclCommInitRank comm 0x7 rank {rank} nranks 8\n"
    texts = {
        f"pod{h}": "".join(joined.format(h=h, pid=71 + n, rank=4 * h + n) for n in range(4))
        for h in (0, 1)
    }
    table = TABLE.format(rank=2, local=2, code=-9, pid=73)
    xid = "kernel: NVRM: Xid (PCI:0000:2a:00): 79, pid=73, name=python, GPU has fallen off\n"
    verdict = judged(tmp_path / "two", **texts, table=table, dmesg=xid)
    assert 6 not in verdict.culprits
    one = judged(tmp_path / "one", pod0=texts["pod0"], train=timed_out(0), dmesg=xid)
    assert (one.cause, one.culprits) == (Cause.GPU_FAULT, [2])


def test_a_label_of_hosts_is_no_rank(tmp_path: Path) -> None:
    lines = [f"1: [rank{r}]: {line}" for r in (8, 9) for line in ["step 1\n"] * 4]
    lines += [f"0: [rank{r}]: {line}" for r in (0, 1) for line in ["step 1\n"] * 4]
    lines += [f"1: {line}" for line in named(9).splitlines(True)]
    assert judged(tmp_path, slurm="".join(lines)).culprits == [9]


def test_deepspeed_names_whoever_it_started_last(tmp_path: Path) -> None:
    last = "[ERROR] [launch.py:325:sigkill_handler] ['python', '--local_rank=7'] exits with return"
    verdict = judged(tmp_path, train=f"{timed_out(0)}{timed_out(1)}{last} code = 1\n")
    assert not verdict.culprits


def test_numbers_that_no_rank_has(tmp_path: Path) -> None:
    text = named(999_999_999) + "srun: error: n1: tasks 0-99999999999: Killed\nnranks 999999\n"
    verdict = judged(tmp_path, train=text)
    assert not verdict.culprits and verdict.status is Status.INCONCLUSIVE
    assert not verdict.inputs.missing_ranks


def test_kernels_and_slurm_say_why_a_process_was_killed(tmp_path: Path) -> None:
    table = TABLE.format(rank=3, local=3, code=-9, pid=4242)
    killed = "[Sun Mar  1 12:00:00 2026] Out of memory: Killed process {} (python)\n"
    one = judged(tmp_path / "kernel", train=table, dmesg=killed.format(4242))
    assert found(one) == (Status.FAILED, Cause.OOM_KILLED, [3])
    other = judged(tmp_path / "other", train=table, dmesg=killed.format(17))
    assert found(other) == (Status.FAILED, Cause.CRASH, [3])
    said = "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0.\n"
    slurm = judged(tmp_path / "slurm", train=f"{said}srun: error: n1: task 3: Out Of Memory\n")
    assert found(slurm) == (Status.FAILED, Cause.OOM_KILLED, [3])


def test_a_device_error_that_nobody_survives(tmp_path: Path) -> None:
    error = (
        "[rank6]:[E301 12:00:00.500 ProcessGroupNCCL.cpp:1515] [PG ID 0 PG GUID 0(default_pg) Rank "
        "6] Process group watchdog thread terminated with exception: CUDA error: uncorrectable ECC "
        "error encountered\n"
    )
    verdict = judged(tmp_path, train=error + timed_out(0) + timed_out(1))
    assert found(verdict) == (Status.FAILED, Cause.GPU_FAULT, [6])


def test_watchdogs_tell_who_never_came_and_who_called_something_else(tmp_path: Path) -> None:
    waiting = "".join(timed_out(rank) for rank in (0, 1, 2))
    behind = judged(tmp_path / "behind", train=waiting + OBSERVED.format(rank=3, seq=6))
    assert found(behind) == (Status.HUNG, Cause.MISSING_RANK, [3])
    other = judged(tmp_path / "other", train=waiting + timed_out(3, op="BROADCAST"))
    assert (other.status, other.culprits) == (Status.HUNG, [3])
    assert other.cause in (Cause.COLLECTIVE_MISMATCH, Cause.SKIPPED_COLLECTIVE)
    size = judged(tmp_path / "size", train=waiting + timed_out(3, size=65))
    assert found(size) == (Status.HUNG, Cause.SIZE_MISMATCH, [3])
    # Of a rank that wrote nothing nothing is known.
    silent = judged(tmp_path / "silent", train=waiting + named(3, "warned\n"))
    assert silent.status is Status.INCONCLUSIVE and not silent.culprits
    assert "whether rank 3 came cannot be told" in silent.summary


def test_victims_alone_accuse_nobody(tmp_path: Path) -> None:
    closed = "RuntimeError: Connection closed by peer [10.0.0.1]:4242\n"
    text = RAISED.replace("KeyError: 'labels'\n", closed)
    verdict = judged(tmp_path, **{f"rank{n}": text for n in (0, 1)})
    assert verdict.status is Status.INCONCLUSIVE
    assert "gave up, lost peers or were ended" in verdict.summary
    assert verdict.advice is not None and "Flight Recorder dumps of all ranks" in verdict.advice


def test_the_meeting_point_misses_the_rank_without_a_log(tmp_path: Path) -> None:
    said = RAISED.replace('train.py", line 33, in main', 'rendezvous.py", line 9, in rendezvous')
    said = said.replace(
        "KeyError: 'labels'",
        "torch.distributed.DistStoreError: Timed out after 61 seconds waiting for clients. 3/4 "
        "clients joined.",
    )
    texts = {"rank0": said, "rank1": "begins\n", "rank3": "begins\n"}
    verdict = judged(tmp_path / "silent", **texts)
    assert found(verdict) == (Status.FAILED, Cause.RENDEZVOUS, [2])
    # Who failed before it came says why.
    told = judged(tmp_path / "told", **texts, rank2=RAISED)
    assert found(told) == (Status.FAILED, Cause.EXCEPTION, [2])


def steps(*seconds: int) -> str:
    return "".join(f"2026-03-01 12:{s // 60:02}:{s % 60:02},000 INFO step {s}\n" for s in seconds)


def test_an_error_after_which_the_job_went_on_is_past(tmp_path: Path) -> None:
    went_on = steps(*range(5)) + named(3) + steps(*range(6, 20))
    assert not judged(tmp_path / "on", train=went_on).culprits
    # Two logs one behind the other: the steps behind the error were made before it.
    behind = steps(*range(30)) + named(3) + steps(*range(32))
    assert judged(tmp_path / "behind", train=behind).culprits == [3]
    # Its peers may make a step more.
    one_more = steps(*range(5)) + named(3) + steps(6, 7)
    assert judged(tmp_path / "more", train=one_more).culprits == [3]


def test_attempts_and_successes(tmp_path: Path) -> None:
    failed = {f"r__attempt_0__{n}__stderr": RAISED if n == 1 else "a\n" for n in range(2)}
    again = {f"r__attempt_1__{n}__stderr": "a\n" for n in range(2)}
    verdict = judged(tmp_path / "again", **failed, **again)
    assert verdict.status is Status.INCONCLUSIVE and not verdict.culprits
    assert {one.reason for one in verdict.inputs.set_aside} == {"a log of an earlier attempt"}
    ended = (
        "I0301 12:00:00 agent/server/api.py:874] [default] worker group successfully finished.\n"
    )
    sound = judged(tmp_path / "sound", train=named(1, "Traceback (most recent call last):") + ended)
    assert sound.status is Status.HEALTHY and "successfully finished" in sound.summary


def test_nothing_that_names_a_rank(tmp_path: Path) -> None:
    verdict = judged(tmp_path, train="step 1\nstep 2\n")
    assert verdict.status is Status.INCONCLUSIVE
    assert verdict.summary.startswith("No line of the logs tells which rank")
    assert verdict.advice is not None and "--redirects 3" in verdict.advice


def test_codings_and_what_is_no_text(tmp_path: Path) -> None:
    text = f"step 1\r  10%\r  20%\r\n\x1b[31m{named(2)}\x1b[0m"
    kinds = {
        "utf8": text.encode(),
        "utf16": b"\xff\xfe" + text.encode("utf-16-le"),
        "gzip": gzip.compress(text.encode()),
        "bytes": b"\xff caf\xe9\n" + text.encode(),
        "zeros": b"\0" * 100 + text.encode(),
    }
    for name, data in kinds.items():
        folder = tmp_path / name
        folder.mkdir()
        (folder / "train.log").write_bytes(data)
        if name != "zeros":
            assert found(analyze(folder)) == (Status.FAILED, Cause.EXCEPTION, [2]), name


def test_a_large_log_is_read_at_its_ends_and_around_errors(tmp_path: Path) -> None:
    filler = "step of some words that nobody reads\n" * 100_000
    verdict = judged(tmp_path, train=filler + named(2) + filler * 2)
    assert (tmp_path / "train.log").stat().st_size > 8 << 20
    assert found(verdict) == (Status.FAILED, Cause.EXCEPTION, [2])


# -- beside dumps


def test_a_log_says_why_a_rank_left_no_dump(tmp_path: Path) -> None:
    for rank in (0, 1, 2):
        write_dump(tmp_path, rank, 4, entered=True)
    alone = analyze(tmp_path)
    assert alone.status is Status.INCONCLUSIVE
    verdict = judged(tmp_path, train=named(3))
    assert found(verdict) == (Status.FAILED, Cause.EXCEPTION, [3])
    assert "its peers wait for it" in verdict.summary
    assert not verdict.inputs.unusable


def test_who_waits_for_another_was_ended_by_somebody(tmp_path: Path) -> None:
    for rank in range(4):
        write_dump(tmp_path, rank, 4, entered=rank != 2)
    killed = TABLE.format(rank=3, local=3, code=-int(signal.SIGKILL), pid=9)
    verdict = judged(tmp_path, train=killed)
    assert found(verdict) == (Status.HUNG, Cause.MISSING_RANK, [2])
    # A traceback may have been survived, and an abort is what a watchdog leaves.
    for code in (-6, -11, 1, 137, 143):
        told = TABLE.format(rank=3, local=3, code=code, pid=9)
        assert judged(tmp_path, train=told, rank3=RAISED + "step 2\n").culprits == [2]
    (tmp_path / "train.log").unlink()
    assert judged(tmp_path, rank3=RAISED).culprits == [2]
    sticky = "RuntimeError: CUDA error: an illegal memory access was encountered\n"
    died = judged(tmp_path, rank3=f"{sticky}terminate called without an exception\n")
    assert died.culprits == [3]


def test_a_log_of_another_day_is_no_evidence(tmp_path: Path) -> None:
    for rank in range(4):
        write_dump(tmp_path, rank, 4, entered=rank != 2)
    old = "2026-01-03 12:00:00,000 INFO step 7\n"
    verdict = judged(tmp_path, train=old + named(3) + TABLE.format(
        rank=3, local=3, code=1, pid=9).replace("2026-03-01", "2026-01-03"))  # fmt: skip
    assert found(verdict) == (Status.HUNG, Cause.MISSING_RANK, [2])
    assert [one.reason for one in verdict.inputs.unusable] == [
        "a log of another time than the dumps"
    ]


def test_stacks_of_py_spy_beside_dumps_tell_the_line(tmp_path: Path) -> None:
    for rank in range(4):
        write_dump(tmp_path, rank, 4, entered=rank != 2)
    stack = (
        "Process 4711: python train.py\nPython v3.11.9 (/usr/bin/python3.11)\n\n"
        'Thread 4711 (idle): "MainThread"\n    wait (threading.py:320)\n'
        "    load (/w/data.py:12)\n    <module> (/w/train.py:40)\n"
    )
    verdict = judged(tmp_path, pyspy_rank2=stack)
    assert found(verdict) == (Status.HUNG, Cause.MISSING_RANK, [2])
    assert verdict.location is not None
    assert (verdict.location.file, verdict.location.line) == ("/w/data.py", 12)


def test_what_watchdogs_tell_is_held_against_ends(tmp_path: Path) -> None:
    """Rank 3 never came; rank 1 survived an error, and a child of its was killed."""
    waiting = {f"rank{n}": timed_out(n) for n in (0, 2)}
    for early in (f"{RAISED}step 1\n", "Killed\nstep 1\n", RAISED):
        verdict = judged(
            tmp_path, **waiting, rank1=early + timed_out(1), rank3=OBSERVED.format(rank=3, seq=6)
        )
        assert found(verdict) == (Status.HUNG, Cause.MISSING_RANK, [3])


def test_a_traceback_of_nobody_that_was_survived(tmp_path: Path) -> None:
    for rank in (0, 1, 2):
        write_dump(tmp_path, rank, 4, entered=True)
    survived = judged(tmp_path, train=f"{RAISED}WARNING upload failed, going on\nstep 1\n")
    assert not survived.culprits
    assert judged(tmp_path, train=RAISED).culprits == [3]


def test_groups_of_a_few_ranks_are_no_size_of_the_job(tmp_path: Path) -> None:
    assert judged(tmp_path, train=f"tp world size: 2\n{named(9)}").culprits == [9]


def test_open_mpi_tells_the_process(tmp_path: Path) -> None:
    told = "mpirun detected:\n\n  Process name: [[26212,1],1]\n  Exit code:    3\n"
    assert found(judged(tmp_path, mpi=told)) == (Status.FAILED, Cause.CRASH, [1])


@pytest.mark.parametrize(
    "text",
    [
        f"[rank{'9' * 5000}]: Traceback\n",
        'Process 7: a\nThread 0123 (idle): "MainThread"\n    f (a.py:1)\n',
        "[PG 0 " * 60_000,
        "(" + "pid=1 " * 60_000,
        "rank " * 60_000,
    ],
    ids=["digits", "stack", "groups", "processes", "ranks"],
)
def test_hostile_lines(tmp_path: Path, text: str) -> None:
    assert not judged(tmp_path, rank0=text).culprits


def test_the_end_of_a_very_large_log_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_LARGEST", 6 << 20)
    filler = "some words that nobody reads\n" * 400_000
    assert judged(tmp_path, train=filler + named(2)).culprits == [2]
