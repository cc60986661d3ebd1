"""What the command says where its output has no room."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest
from dump_folders import dumps

from hanglab.analyzer.program.job_dumps import JobOptions
from hanglab.harness.capabilities import capability
from hanglab.harness.corpus.adding import add_case
from hanglab.harness.corpus.entries import CorpusEntry, Truth
from hanglab.harness.errors import UsageError
from hanglab.harness.jobs.run_folder import ArtifactsError, write_new

DUMPS = Path(__file__).parents[1] / "data" / "dumps" / "gloo" / "stacks"


@pytest.mark.parametrize("command", [["analyze"], ["analyze", "--json"], ["entries"]])
def test_a_full_disk_is_told_without_a_traceback(command: list[str]) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "hanglab.harness.cli", *command, str(DUMPS)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=280,
            check=False,
        )
    assert ended.returncode == 4
    assert "No space left on device" in ended.stderr
    assert "Free some space" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert "Exception ignored" not in ended.stderr


def test_a_reader_that_goes_away_is_no_error() -> None:
    command = [sys.executable, "-m", "hanglab.harness.cli", "analyze", "--json", str(DUMPS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as started:
        assert started.stdout is not None and started.stderr is not None
        first = started.stdout.read(1)
        started.stdout.close()
        assert started.stderr.read() == b""
        assert started.wait(280) in (0, 1)
    assert first == b"{"


SCRIPT = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for step in range(5):
    dist.all_reduce(torch.ones(4))
dist.destroy_process_group()
"""


TOLD = ("cannot be written", "nothing more can be written", "no folder for temporary files")


@pytest.mark.few(5)
@pytest.mark.parametrize(
    ("command", "needs"),
    [
        (["simulate", "--ranks", "4", "--fault", "skip", "--out", "out"], False),
        (["new", "heuristic", "polls"], False),
        (["new", "scenario", "polls"], False),
        (["new", "pack", "polls"], False),
        (["eval", "--corpus", "corpus", "--json", "out.json"], False),
        (["eval", "--corpus", "corpus", "--html", "out.html"], False),
        (["list", "--as-suite", "out"], False),
        (["replay", "dumps", "--out", "out"], True),
        (["minimise", "dumps", "-o", "out.py"], True),
        (["mutate", "train.py", "--world-size", "2", "--out", "out"], True),
        (
            "corpus add mine dumps --name a/b --status hung --culprits 1 --origin x "
            "--licence CC0-1.0".split(),
            False,
        ),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else "",
)
def test_a_full_disk_of_the_output_is_told_in_a_sentence(
    command: list[str], needs: bool, tmp_path: Path
) -> None:
    """No file may grow, as on a full disk; only its reason reads otherwise."""
    if needs and not capability("torch").available:
        pytest.skip("torch is not installed")
    dumps(tmp_path / "dumps", JobOptions(4, "world", "skip", operations=20))
    (tmp_path / "train.py").write_text(SCRIPT)
    entry = CorpusEntry(source="here", licence="CC0-1.0", truth=[Truth("hung", None, [1])])
    add_case(tmp_path / "corpus", "a/b", tmp_path / "dumps", entry)
    before = {path.name for path in tmp_path.rglob("*")}
    ended = subprocess.run(
        [sys.executable, "-m", "hanglab.harness.cli", *command],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)),
    )
    assert ended.returncode == 4, ended.stderr
    assert any(words in ended.stderr for words in TOLD)
    assert "Traceback" not in ended.stderr + ended.stdout
    # A file that is empty would be in the way of the next try.
    left = [path for path in tmp_path.rglob("*") if path.name not in before and path.is_file()]
    names = {path.name for path in left if "runs" not in path.parts and "out" not in path.parts}
    assert not names


def test_what_cannot_be_written_is_told_with_where_it_lies(tmp_path: Path) -> None:
    target, kept = tmp_path / "repro.py", tmp_path / "step_3.py"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        with pytest.raises(ArtifactsError) as told:
            write_new(target, "text", kept)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert str(kept) in told.value.advice and "space left" in told.value.advice
    assert not target.exists()
    target.write_text("mine")
    with pytest.raises(UsageError):
        write_new(target, "text")
    assert target.read_text() == "mine"
