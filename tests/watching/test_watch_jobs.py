"""``hanglab watch`` beside real jobs that know nothing of it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from collectors import collecting
from conditions import wait_for
from installed import needs_torch
from rank_containers import Machine, machine, needs_namespaces

from hanglab.analyzer.engine import analyze
from hanglab.harness.watching import finding
from hanglab.harness.watching.finding import JobFinder
from hanglab.recorder.attach import tree
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case.reader import CaseReader
from hanglab.recorder.system import procfs
from hanglab.recorder.system.stacks import NoStacks

sys.path.insert(0, str(Path(__file__).parents[1] / "recording"))
from recording_support import (
    HANGLAB,
    PATIENCE,
    environment,
    free_port,
    program,
    started,
)
from small_disks import small_disk

pytestmark = [needs_torch, pytest.mark.slow]
__all__ = ["machine"]


@contextlib.contextmanager
def watching(folder: Path, *options: str | Path) -> Iterator[Path]:
    """A watch of this test's jobs alone; the file of what it says."""
    words = folder / "watch.txt"
    # As the unit has it: root without root's rights, save these two.
    rights = "-all,+sys_ptrace,+dac_read_search"
    few = ["setpriv", "--no-new-privs", "--bounding-set", rights, "--inh-caps=-all"]
    root = os.geteuid() == 0 and shutil.which("setpriv") is not None
    command = [
        *(few if root else []),
        *HANGLAB,
        "watch",
        "--below",
        str(os.getpid()),
        "--least",
        "3",
        *map(str, options),
    ]
    command += ["--state", str(folder / "state")]
    with words.open("wb") as errors:
        watch = subprocess.Popen(command, cwd=folder, env=environment(), stderr=errors)
    try:
        wait_for(lambda: b"watching" in words.read_bytes(), "the watch to begin")
        yield words
        watch.send_signal(signal.SIGTERM)
        assert watch.wait(60) == 0, words.read_text()
        assert "Traceback" not in words.read_text()
    finally:
        watch.kill()
        watch.wait()


def kept(folder: Path) -> list[tuple[str, str | None, str]]:
    """Kind, cause and culprits of each event in the history."""
    with contextlib.closing(sqlite3.connect(folder / "state" / "watch.sqlite")) as history:
        return [*history.execute("SELECT kind, cause, culprits FROM events ORDER BY id")]


@contextlib.contextmanager
def hanging(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    command = program("spawned_program.py", "hang", str(tmp_path / "store"))
    with started(command, tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as job:
        wait_for((tmp_path / "store.hangs").exists, "the job to hang")
        yield job


def test_a_job_that_nobody_records_is_found_captured_once_and_left_alone(tmp_path: Path) -> None:
    with hanging(tmp_path) as job, watching(tmp_path, "--out", tmp_path / "cases") as words:
        ranks = procfs.descendants([job.pid])[job.pid]
        said = wait_for(
            lambda: "Rank 1" in (text := words.read_text()) and text, "the watch to tell"
        )
        assert said.count("ranks here are watched") == 1
        (case,) = (tmp_path / "cases").glob("*/hanglab-case-*")
        verdict = analyze(case)
        assert (verdict.status.value, verdict.culprits) == ("hung", [1])
        # Found again by what it is, and not as another job because it has a Case by now.
        (found,) = JobFinder(os.getpid()).look()
        assert sorted(rank.rank for rank in found.ranks.values()) == [0, 1]
        assert all(procfs.state(pid) not in ("", "T", "Z") for pid in ranks)
        # Of who was reaped before the watch looks nobody knows how it ended.
        os.kill(job.pid, signal.SIGSTOP)
        for pid in ranks:
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: "signal 9" in words.read_text(), "the failure to be told")
        assert list((tmp_path / "cases").glob("*/*")) == [case]
        told = wait_for(lambda: kept(tmp_path)[1:], "the failure to be kept")
        assert told == [("failed", None, "[]")]


def test_a_look_at_a_stack_that_fails_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finding, "_SPAWNED_S", 0.0)
    look = tree.spawn_number
    failed: list[int] = []

    def fail_at_first(pid: int) -> int | None:
        if pid not in failed:
            failed.append(pid)
            raise NoStacks("py-spy did not finish within 3 s")
        return look(pid)

    monkeypatch.setattr(tree, "spawn_number", fail_at_first)
    with hanging(tmp_path):
        finder = JobFinder(os.getpid())
        assert not finder.look()
        (job,) = finder.look()
    assert len(failed) >= 2
    assert sorted(rank.rank for rank in job.ranks.values()) == [0, 1]


#: Steps until a file is there; the argument is that file.
_TRAINS = """
import os, sys, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
while True:
    over = torch.tensor(float(os.path.exists(sys.argv[1])))
    dist.all_reduce(over)
    if over.item():
        break
    dist.all_reduce(torch.ones(1 << 16))
    time.sleep(0.02)
# Whoever goes while others still take their part of the last operation has them abort now and then.
dist.barrier()
dist.destroy_process_group()
"""


@contextlib.contextmanager
def training(
    tmp_path: Path, inside: Sequence[Sequence[str]] = ((), ()), **job: str
) -> Iterator[list[subprocess.Popen[str]]]:
    """Two ranks that train, each of them a process of this one, or of a command's ``inside``."""
    words = [sys.executable, "-c", _TRAINS, tmp_path / "over"]
    job = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2", **job}
    with contextlib.ExitStack() as stack:
        ranks = [
            stack.enter_context(
                started(
                    [*before, *words],
                    tmp_path,
                    variables={**job, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            )
            for rank, before in enumerate(inside)
        ]
        yield ranks


def test_a_rank_that_somebody_stops_is_told_of_and_so_is_its_going_on(tmp_path: Path) -> None:
    with training(tmp_path) as ranks, watching(tmp_path) as words:
        wait_for(lambda: "2 ranks here are watched" in words.read_text(), "the job to be found")
        ranks[1].send_signal(signal.SIGSTOP)
        wait_for(lambda: kept(tmp_path), "the stop to be told")
        assert kept(tmp_path) == [("stopped", "process_frozen", "[1]")]
        ranks[1].send_signal(signal.SIGCONT)
        wait_for(lambda: kept(tmp_path)[1:], "the movement to be told")
        assert kept(tmp_path)[1:] == [("resumed", None, "[]")]
        (tmp_path / "over").touch()
        assert [rank.wait(PATIENCE) for rank in ranks] == [0, 0]
    assert len(kept(tmp_path)) == 2, "an end without an error is none to tell of"
    (case,) = (tmp_path / "state" / "cases").glob("*/*")
    assert analyze(case).culprits == [1]


@needs_namespaces
def test_of_two_jobs_in_containers_that_say_the_same_the_one_that_stops_is_told_as_a_whole(
    tmp_path: Path, machine: Machine
) -> None:
    """Each rank has a container of its own, and the networks of the two jobs the same addresses."""
    addresses = ("10.9.0.1", "10.9.0.2")
    names = {"MASTER_ADDR": addresses[0], "MASTER_PORT": "29500", "GLOO_SOCKET_IFNAME": "eth0"}
    with contextlib.ExitStack() as stack:
        both = []
        for _ in range(2):
            network = machine.network()
            containers = [machine.container() for _ in addresses]
            for container, address in zip(containers, addresses, strict=True):
                network.join(container, address)
            inside = [container.inside for container in containers]
            both.append(stack.enter_context(training(tmp_path, inside, **names)))
        # Who enters a container is the parent of what runs there.
        ranks = [[procfs.descendants([one.pid])[one.pid][-1] for one in job] for job in both]
        finder = JobFinder(os.getpid())
        wait_for(
            lambda: (
                sorted(sorted(job.ranks) for job in finder.look()) == sorted(map(sorted, ranks))
            ),
            "two jobs of two ranks",
        )
        stack.enter_context(watching(tmp_path))
        os.kill(ranks[0][1], signal.SIGSTOP)
        told = wait_for(lambda: kept(tmp_path), "the stop to be told")
        # Who enters a container stands still with its child.
        for pid in (ranks[0][1], both[0][1].pid):
            os.kill(pid, signal.SIGCONT)
        (tmp_path / "over").touch()
        assert [rank.wait(PATIENCE) for job in both for rank in job] == [0, 0, 0, 0]
    assert told == [("stopped", "process_frozen", "[1]")]
    (case,) = (tmp_path / "state" / "cases").glob("*/*")
    processes = [rank.read(files.PROCESS) for rank in CaseReader(case).ranks]
    assert [process.pid for process in processes if process is not None] == ranks[0]


def test_a_job_that_hangs_is_ended_where_that_was_asked_for(tmp_path: Path) -> None:
    with hanging(tmp_path) as job, watching(tmp_path, "--then", "kill") as words:
        assert job.wait(PATIENCE) != 0, "its launcher sees the ranks end"
        wait_for(lambda: "is ended, as --then kill asks for" in words.read_text(), "the sentence")
    ((kind, _, culprits),) = kept(tmp_path)
    assert (kind, culprits) == ("stopped", "[1]"), "how its ranks ended is the watch's own doing"


def test_where_no_case_can_be_written_the_stop_is_told_all_the_same(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "64k") as disk:
        (disk / "filling").write_bytes(bytes(1 << 15))
        with hanging(tmp_path) as job, watching(tmp_path, "--out", disk / "cases") as words:
            wait_for(lambda: kept(tmp_path), "the stop to be told")
            assert [kind for kind, _, _ in kept(tmp_path)] == ["not_captured"]
            assert "could not be captured: " in words.read_text()
            assert job.poll() is None


def test_a_watch_that_ends_while_it_captures_leaves_no_half_a_case(tmp_path: Path) -> None:
    with hanging(tmp_path), watching(tmp_path) as words:
        wait_for(lambda: [*(tmp_path / "state" / "cases").glob("*/*")], "the capture to begin")
    # watching() has ended it, and waited for its end.
    assert "its capture was ended with the watch" in words.read_text()
    assert not [*(tmp_path / "state" / "cases").glob("*/*")] and not kept(tmp_path)


def test_a_watch_ends_once_no_job_has_run_for_long(tmp_path: Path) -> None:
    with training(tmp_path) as ranks:
        command = [*HANGLAB, "watch", "--below", str(os.getpid()), "--state", tmp_path / "state"]
        with started([*command, "--least", "3", "--until-idle", "2"], tmp_path) as watch:
            assert watch.stderr is not None
            assert any("2 ranks here are watched" in line for line in watch.stderr)
            assert watch.poll() is None
            (tmp_path / "over").touch()
            assert [rank.wait(PATIENCE) for rank in ranks] == [0, 0]
            assert watch.wait(PATIENCE) == 0
    assert not kept(tmp_path)


def test_a_case_goes_to_a_store_and_stays(tmp_path: Path) -> None:
    store = f"file://{tmp_path / 'bucket'}"
    with hanging(tmp_path), watching(tmp_path, "--out", store):
        wait_for(lambda: kept(tmp_path), "the stop to be told")
        sent = wait_for(
            lambda: [*(tmp_path / "bucket").rglob("manifest.json")], "the Case to be sent"
        )
    (case,) = (tmp_path / "state" / "cases").glob("*/*")
    copy = next(folder for folder in sent[0].parents if folder.name == case.name)
    assert analyze(copy).culprits == analyze(case).culprits == [1]


def test_a_collector_that_does_not_answer_holds_no_watch_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("opentelemetry.sdk._logs")
    with collecting() as collector:
        collector.awake.clear()
        for name, value in collector.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
        with hanging(tmp_path) as job, watching(tmp_path, "--opentelemetry") as words:
            ranks = procfs.descendants([job.pid])[job.pid]
            wait_for(lambda: "(it did not answer in time)" in words.read_text(), "the try in vain")
            os.kill(job.pid, signal.SIGSTOP)
            for pid in ranks:
                os.kill(pid, signal.SIGKILL)
            wait_for(lambda: "signal 9" in words.read_text(), "the failure to be told")
            tried = collector.came
            collector.awake.set()
        # watching() has ended it, and with that came its last try.
        assert collector.came > tried
        taken = [record.body.string_value for record in collector.taken]
        assert taken and all("Rank 1" in body for body in taken)
        assert "left undone" not in words.read_text()
