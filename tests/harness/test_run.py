"""``hanglab run`` from the outside: outcomes, artifacts, plain scripts, interruptions."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conditions import wait_for
from kept_launcher import run_script

HANGLAB = [sys.executable, "-m", "hanglab.harness.cli"]
HEADER = """
import torch
import torch.distributed as dist
from hanglab.harness import Cause, Expect, Kill, scenario
"""
SCENARIOS = {
    "sound": """
@scenario(world_size=2, expect=Expect(Cause.SKIPPED_COLLECTIVE, culprits={1}))
def sound(job):
    for step in job.steps(6):
        if not (job.faulty and job.rank == 1 and step == 3):  # FAULT
            dist.all_reduce(torch.ones(4))
        dist.broadcast(torch.zeros(2), src=0)  # SEEN
""",
    "wrong": """
@scenario(world_size=2, expect=Expect(Cause.GROUP_ORDER, culprits={0}))
def wrong(job):
    for step in job.steps(6):
        if not (job.faulty and job.rank == 1 and step == 3):  # FAULT
            dist.all_reduce(torch.ones(4))
        dist.broadcast(torch.zeros(2), src=0)
""",
    "harmless": """
@scenario(world_size=2, expect=Expect(Cause.MISSING_RANK, culprits={1}))
def harmless(job):
    for step in job.steps(3):
        dist.all_reduce(torch.ones(4))  # FAULT
""",
    "never_struck": """
@scenario(
    world_size=2,
    expect=Expect(Cause.CRASH, culprits={1}, location=None),
    faults=[Kill(rank=1, at_step=1000)],
)
def never_struck(job):
    for step in job.steps(3):
        dist.all_reduce(torch.ones(4))
""",
    "raises": """
@scenario(world_size=2, expect=Expect(Cause.MISSING_RANK, culprits={1}))
def raises(job):
    no_such_thing
    dist.all_reduce(torch.ones(4))  # FAULT
""",
    "raises_as_it_must": """
@scenario(world_size=2, expect=Expect(Cause.UNEVEN_INPUTS, culprits={0}))
def raises_as_it_must(job):
    for step in job.steps(6):
        dist.all_reduce(torch.ones(4))
        if job.faulty and job.rank == 1 and step == 3:
            raise ValueError("its fault")  # FAULT
""",
    "does_not_import": """
import no_such_package

@scenario(world_size=2, expect=Expect(Cause.MISSING_RANK, culprits={1}))
def does_not_import(job):
    dist.all_reduce(torch.ones(4))  # FAULT
""",
    "does_not_parse": "def (:\n",
    "elsewhere": """
@scenario(backends=("nccl",), expect=Expect(Cause.MISSING_RANK, culprits={1}))
def elsewhere(job):
    dist.all_reduce(torch.ones(4))  # FAULT
""",
}


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One run over all of SCENARIOS: its JSON, exit code and folder."""
    folder = tmp_path_factory.mktemp("suite")
    (folder / "files").mkdir()
    for name, body in SCENARIOS.items():
        (folder / "files" / f"{name}.py").write_text(HEADER + body)
    done = subprocess.run(
        [*HANGLAB, "run", "files", "--json", "--jobs", "2", "--seed", "7"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    content: dict[str, Any] = json.loads(done.stdout)
    content["code"] = done.returncode
    content["at"] = folder
    return content


def result_of(suite: dict[str, Any], name: str, variant: str | None = "fault") -> dict[str, Any]:
    (result,) = [
        result
        for result in suite["results"]
        if (result["scenario"], result["variant"]) == (name, variant)
    ]
    found: dict[str, Any] = result
    return found


@pytest.mark.parametrize(
    "name, variant, outcome, reason",
    [
        ("sound", "fault", "pass", ""),
        ("sound", "control", "pass", ""),
        ("wrong", "fault", "wrong verdict", "cause should be group_order"),
        ("wrong", "control", "pass", ""),
        ("harmless", "fault", "not reproduced", "every rank ended without an error"),
        ("never_struck", "fault", "not reproduced", "reaches step 1000"),
        ("raises", "fault", "harness error", "raised before its fault"),
        ("raises", "control", "harness error", "failed by itself"),
        ("raises_as_it_must", "fault", "wrong verdict", "cause should be uneven_inputs"),
        ("raises_as_it_must", "control", "pass", ""),
        ("does_not_import", "fault", "harness error", "raised before its fault"),
        ("does_not_parse", None, "harness error", "SyntaxError"),
        ("elsewhere", "fault", "skipped", "nccl only"),
    ],
)
def test_each_job_has_its_outcome(
    suite: dict[str, Any], name: str, variant: str | None, outcome: str, reason: str
) -> None:
    result = result_of(suite, name, variant)
    assert result["outcome"] == outcome, result
    assert reason in result["reason"]


def test_the_traceback_is_shown(suite: dict[str, Any]) -> None:
    assert "NameError" in result_of(suite, "raises")["detail"]
    assert "no_such_package" in result_of(suite, "does_not_import")["detail"]


def test_the_gravest_outcome_is_the_exit_code(suite: dict[str, Any]) -> None:
    assert suite["code"] == suite["exit_code"] == 4


def test_artifacts_lie_where_they_belong(suite: dict[str, Any]) -> None:
    latest = (suite["at"] / "runs" / "latest").resolve()
    assert str(latest) == suite["folder"]
    for result in suite["results"]:
        if result["artifacts"] is None:
            continue
        folder = Path(result["artifacts"])
        assert folder == latest / result["scenario"] / result["variant"] / "0"
        truth = json.loads((folder / "truth.json").read_text())
        assert truth["seed"] == 7
        assert truth["outcome"] == result["outcome"]
        assert json.loads((folder / "verdict.json").read_text()) == result["verdict"]
        assert (folder / "case" / "manifest.json").is_file()
        assert (folder / "log" / "rank0.err").is_file()
    assert json.loads((latest / "results.json").read_text())["results"] == suite["results"]


def test_the_case_holds_no_ground_truth(suite: dict[str, Any]) -> None:
    case = Path(result_of(suite, "sound")["artifacts"]) / "case"
    for path in case.rglob("*"):
        if path.is_file():
            text = path.read_bytes()
            assert b"HANGLAB_FAULT" not in text, path
            assert b"skipped_collective" not in text, path
            assert b"SKIPPED_COLLECTIVE" not in text, path


PLAIN = """
import sys
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for step in range(int(sys.argv[1])):
    dist.all_reduce(torch.ones(2))
    if sys.argv[2] == "stop" and dist.get_rank() == 1:
        import threading
        threading.Event().wait()
dist.destroy_process_group()
"""


def run_plain(folder: Path, *words: str) -> tuple[int, dict[str, Any]]:
    (folder / "train.py").write_text(PLAIN)
    return run_script(folder, "train.py", "--world-size", "2", *words)


@pytest.mark.slow
def test_a_plain_script_gets_its_verdict(tmp_path: Path, kept_launcher: None) -> None:
    code, verdict = run_plain(tmp_path, "--hang-after", "1.5", "--", "5", "stop")
    assert code == 0
    assert (verdict["status"], verdict["culprits"]) == ("hung", [1])
    assert (
        verdict["location"]["line"]
        == PLAIN.splitlines().index("        threading.Event().wait()") + 1
    )


def test_a_plain_script_that_ends_is_healthy(tmp_path: Path, kept_launcher: None) -> None:
    code, verdict = run_plain(tmp_path, "--", "5", "go")
    assert (code, verdict["status"]) == (0, "healthy")


@pytest.fixture
def stuck(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A run whose job stands still, well before anybody would call it hung."""
    (tmp_path / "train.py").write_text(PLAIN)
    process = subprocess.Popen(
        [*HANGLAB, "run", "train.py", "--world-size", "2", "--hang-after", "90", "--", "5", "stop"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_ends_everything_and_keeps_its_artifacts(
    stuck: subprocess.Popen[str], tmp_path: Path, number: int, code: int
) -> None:
    ranks = wait_for(
        lambda: registered(tmp_path) if len(registered(tmp_path)) == 2 else None, "two ranks"
    )
    stuck.send_signal(number)
    _, errors = stuck.communicate(timeout=280)
    assert stuck.returncode == code
    assert "Traceback" not in errors
    for pid in ranks:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    (folder,) = (tmp_path / "runs" / "latest" / "train" / "fault").iterdir()
    assert (folder / "case" / "manifest.json").is_file()
    truth = json.loads((folder / "truth.json").read_text())
    # Once, of many hundred runs, it was not; the whole record would have told why.
    assert truth["reason"] == "interrupted", truth
    assert (tmp_path / "runs" / "latest" / "results.json").is_file()


@pytest.mark.slow
def test_nothing_outlives_a_killed_run(stuck: subprocess.Popen[str], tmp_path: Path) -> None:
    wait_for(lambda: len(registered(tmp_path)) == 2, "two ranks")
    assert about(tmp_path)
    stuck.kill()
    stuck.wait()
    wait_for(lambda: not about(tmp_path), "an end of all processes")
    # The recorder's agent still finished its Case.
    assert list((tmp_path / "runs").glob("latest/train/fault/0/case/manifest.json"))


def about(folder: Path) -> list[str]:
    """Living processes whose command line or environment names ``folder``."""
    found = []
    for process in Path("/proc").iterdir():
        if not process.name.isdigit() or int(process.name) == os.getpid():
            continue
        try:
            state = (process / "stat").read_text().rpartition(")")[2].split()[0]
            text = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
        except OSError:
            continue
        if state not in "ZX" and os.fsencode(folder) in text:
            found.append(process.name)
    return found


def registered(folder: Path) -> list[int]:
    """Process ids of the ranks that have registered in the latest run."""
    found = (folder / "runs").glob("latest/train/fault/0/case/hosts/*/ranks/*/process.json")
    return [json.loads(path.read_text())["pid"] for path in found]


@pytest.mark.parametrize(
    "words, complaint",
    [
        (["run", "no_such_scenario"], "There is no scenario 'no_such_scenario'"),
        (["run", "none.py"], "none.py cannot be read"),
        (["run", "--backend", "mpi"], "mpi"),
        (["run", "--jobs", "0"], "jobs"),
        (["run", "--world-size", "100000000"], "4096"),
        (["run", "skipped_collective", "--", "5"], "plain script"),
        (["run", __file__, "--quick"], "--quick"),
        (["no-such-command"], "no-such-command"),
        (["record", "true"], "Put -- before the command: hanglab record [OPTIONS] -- COMMAND"),
    ],
)
def test_wrong_usage_is_told(tmp_path: Path, words: list[str], complaint: str) -> None:
    done = subprocess.run(
        [*HANGLAB, *words], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=280
    )
    assert done.returncode == 64
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.slow
def test_skips_are_told_once_for_each_reason(tmp_path: Path) -> None:
    for name in ("one", "two"):
        body = SCENARIOS["elsewhere"].replace("def elsewhere", f"def {name}")
        (tmp_path / f"{name}.py").write_text(HEADER + body)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*HANGLAB, "run", ".", *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
            timeout=280,
        )

    done = run()
    assert (done.stdout + done.stderr).count("nccl only") == 1
    assert "2 scenarios skipped: runs on nccl only" in done.stdout
    assert "    one, two" in done.stdout.splitlines()
    assert "0 jobs; 2 scenarios skipped (reasons at the end)" in done.stderr
    # Of a category that cannot run, the sample names one.
    assert "1 scenario skipped: runs on nccl only" in run("--quick").stdout


def test_a_run_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("in the way")
    done = subprocess.run(
        [*HANGLAB, "run", "skipped_collective"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 4
    assert "Traceback" not in done.stderr
    assert "write" in done.stderr


@pytest.mark.parametrize("kind", ["empty", "absent", "file"])
def test_analyze_says_what_it_cannot_read(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "case"
    if kind == "empty":
        path.mkdir()
    elif kind == "file":
        path.write_text("no dump")
    done = subprocess.run(
        [*HANGLAB, "analyze", str(path)], capture_output=True, text=True, check=False, timeout=280
    )
    assert done.returncode == 4
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 2


@pytest.mark.slow
def test_analyze_prints_what_the_run_concluded(suite: dict[str, Any]) -> None:
    folder = Path(result_of(suite, "sound")["artifacts"])
    done = subprocess.run(
        [*HANGLAB, "analyze", str(folder / "case"), "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0
    assert json.loads(done.stdout) == json.loads((folder / "verdict.json").read_text())
    shown = subprocess.run(
        [*HANGLAB, "analyze", str(folder / "case")],
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert "skipped_collective" in shown.stdout
    assert "sound.py" in shown.stdout


@pytest.mark.slow
def test_entries_shows_the_calls_of_all_ranks(suite: dict[str, Any], tmp_path: Path) -> None:
    case = str(Path(result_of(suite, "sound")["artifacts"]) / "case")

    def entries(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*HANGLAB, "entries", case, *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=280,
        )

    shown = entries("--unfinished")
    assert shown.returncode == 0
    assert "all_reduce" in shown.stdout
    assert "operation differs" in shown.stdout
    assert entries("--parquet", str(tmp_path / "tables")).returncode == 0
    assert (tmp_path / "tables" / "calls.parquet").is_file()
    (tmp_path / "file").touch()
    refused = entries("--parquet", str(tmp_path / "file"))
    assert refused.returncode == 4
    assert "Traceback" not in refused.stderr
    assert entries("--seq", "x").returncode == 64


def test_list_prints_every_scenario(tmp_path: Path) -> None:
    listed = subprocess.run(
        [*HANGLAB, "list", "--json"], capture_output=True, text=True, check=True, timeout=280
    )
    names = [row["scenario"] for row in json.loads(listed.stdout)]
    shown = subprocess.run(
        [*HANGLAB, "list"], capture_output=True, text=True, check=True, timeout=280
    )
    for name in names:
        assert name in shown.stdout
