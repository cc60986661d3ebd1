"""Bad input to the commands that record and capture: one sentence, the right code, no traces."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from conditions import wait_for
from recording_support import HANGLAB, environment, hanglab, started

from hanglab.harness.errors import UsageError
from hanglab.harness.recording import case_folder
from hanglab.harness.recording.case_folder import claim_folder, make_some_folder, name_folder
from hanglab.recorder.case.reader import CaseReader

AS_NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


def said(done: subprocess.CompletedProcess[str]) -> str:
    assert "Traceback" not in done.stderr
    lines = done.stderr.strip().splitlines()
    assert lines[0].startswith("hanglab: ") and len(lines) == 2, done.stderr
    return lines[0]


def test_command_that_does_not_exist(tmp_path):
    done = hanglab("record", "--", "no-such-command", "x", cwd=tmp_path)
    assert done.returncode == 64
    assert "no-such-command does not exist" in said(done)
    assert list(tmp_path.iterdir()) == []


def test_command_that_is_no_program(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("print(1)\n")
    done = hanglab("record", "--", "./train.py", cwd=tmp_path)
    assert done.returncode == 64 and "not executable" in said(done)
    assert list(tmp_path.iterdir()) == [script]


def test_no_command(tmp_path):
    done = hanglab("record", cwd=tmp_path)
    assert done.returncode == 64 and "no command" in said(done)


@pytest.mark.parametrize("number", ["nan", "inf"])
@pytest.mark.parametrize(
    "words",
    [
        ("record", "--hang-after", "{}", "--", "true"),
        ("record", "--profile-slow", "{}", "--", "true"),
        ("capture", "--all", "--watch", "{}"),
    ],
    ids=lambda words: words[-3] if "--" in words else words[-2],
)
def test_number_that_is_none(tmp_path, words, number):
    done = hanglab(*(word.format(number) for word in words), cwd=tmp_path)
    assert done.returncode == 64 and f"{number} is no number" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_folder_that_is_not_empty(tmp_path):
    case = tmp_path / "case"
    case.mkdir()
    (case / "thesis.txt").write_text("mine")
    done = hanglab("record", "--out", case, "--", "touch", tmp_path / "ran", cwd=tmp_path)
    assert done.returncode == 64 and "not empty" in said(done)
    assert [p.name for p in case.iterdir()] == ["thesis.txt"] and not (tmp_path / "ran").exists()


def test_process_that_does_not_exist(tmp_path):
    gone = subprocess.Popen(["true"])
    gone.wait()
    done = hanglab("capture", str(gone.pid), cwd=tmp_path)
    assert done.returncode == 64 and f"no process {gone.pid}" in said(done)


def test_process_that_is_no_rank(tmp_path):
    sleeper = subprocess.Popen(["sleep", "60"])
    try:
        done = hanglab("capture", str(sleeper.pid), cwd=tmp_path)
    finally:
        sleeper.kill()
        sleeper.wait()
    assert done.returncode == 4 and "is a rank" in said(done)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_process_of_somebody_else(tmp_path):
    sleeper = subprocess.Popen(["sleep", "60"])
    try:
        done = subprocess.run(
            [*AS_NOBODY, *HANGLAB, "capture", str(sleeper.pid)],
            cwd="/",
            env=environment(HOME="/"),
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        sleeper.kill()
        sleeper.wait()
    assert done.returncode == 4 and "belongs to root" in said(done)


def a_case(folder):
    done = hanglab("record", "--out", folder, "--", sys.executable, "-c", "pass", cwd=folder.parent)
    assert done.returncode == 0
    return folder


@pytest.mark.long
@pytest.mark.parametrize("command", ["analyze", "entries", "pack", "redact"])
def test_case_of_a_newer_format(tmp_path, command):
    case = a_case(tmp_path / "case")
    manifest = case / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "format": 99}))
    options = {"pack": ["-o", "x.tgz"], "redact": ["-o", "x"]}.get(command, [])
    done = hanglab(command, case, *options, cwd=tmp_path)
    assert done.returncode == 4 and "format 99" in said(done)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["case"]


def test_a_small_archive_has_a_size(tmp_path):
    done = hanglab("pack", a_case(tmp_path / "case"), "-o", "x.tar.gz", cwd=tmp_path)
    size = (tmp_path / "x.tar.gz").stat().st_size
    assert done.returncode == 0 and 0 < size < 50_000
    assert "0.0" not in done.stdout and done.stdout.rstrip().endswith(("bytes", "kB"))


@pytest.mark.few(1)
@pytest.mark.parametrize("how", ["missing", "altered", "longer", "a folder"])
def test_case_with_files_missing_or_altered(tmp_path, how):
    case = a_case(tmp_path / "case")
    job = case / "job.json"
    if how == "missing":
        job.unlink()
    elif how == "a folder":
        job.unlink()
        job.mkdir()
    else:
        data = job.read_bytes()
        job.write_bytes(data.replace(b"30", b"31") if how == "altered" else data + b" ")
    for command in ("pack", "redact"):
        done = hanglab(command, case, "-o", tmp_path / "out", cwd=tmp_path)
        assert done.returncode == 4 and "job.json" in said(done)
        assert not (tmp_path / "out").exists()
    done = hanglab("analyze", case, "--json", cwd=tmp_path)
    unusable = json.loads(done.stdout)["inputs"]["unusable"]
    assert [(u["file"].rpartition("/")[2]) for u in unusable] == ["job.json"]


def test_case_with_a_manifest_that_cannot_be_read(tmp_path):
    case = a_case(tmp_path / "case")
    manifest = case / "manifest.json"
    manifest.write_bytes(manifest.read_bytes()[:100])
    for command in ("pack", "redact"):
        done = hanglab(command, case, "-o", tmp_path / "out", cwd=tmp_path)
        assert done.returncode == 4 and "manifest.json cannot be read" in said(done)
        assert not (tmp_path / "out").exists()


def test_a_damaged_case_comes_out_of_its_archive_if_asked_for_as_it_is(tmp_path):
    case = a_case(tmp_path / "case")
    (case / "job.json").unlink()
    packed, back = tmp_path / "x.tgz", tmp_path / "back"
    assert hanglab("pack", case, "--damaged", "-o", packed, cwd=tmp_path).returncode == 0
    done = hanglab("unpack", packed, "-o", back, cwd=tmp_path)
    assert done.returncode == 4 and "job.json is missing" in said(done)
    assert not back.exists()
    assert hanglab("unpack", packed, "--damaged", "-o", back, cwd=tmp_path).returncode == 0
    assert CaseReader(back).manifest == CaseReader(case).manifest


def test_of_two_recordings_into_one_folder_at_once_the_second_is_refused(tmp_path):
    case, go_on = tmp_path / "case", tmp_path / "go on"
    waits = f"import os, time\nwhile not os.path.exists({str(go_on)!r}): time.sleep(0.02)"
    words = [*HANGLAB, "record", "--out", case, "--", sys.executable, "-c", waits]
    commands = []
    with started(words, tmp_path) as one, started(words, tmp_path) as other:
        commands = [one, other]
        wait_for(lambda: any(c.poll() is not None for c in commands), "one to be refused")
        (refused,) = [c for c in commands if c.poll() is not None]
        said_by_it = refused.communicate(timeout=280)[1]
        assert refused.returncode == 64
        assert "nothing is overwritten" in " ".join(said_by_it.replace("│", " ").split())
        go_on.touch()
        (recorded,) = [c for c in commands if c is not refused]
        assert recorded.wait(280) == 0
    assert CaseReader(case).manifest is not None


def test_a_folder_is_claimed_once(tmp_path):
    claim_folder(tmp_path / "case")
    with pytest.raises(UsageError, match="recorded into already"):
        claim_folder(tmp_path / "case")


def test_recordings_that_are_started_together_get_folders_of_their_own(tmp_path):
    named = name_folder(tmp_path)
    folders = {make_some_folder(named, another=True) for _ in range(2)}
    assert len(folders) == 2


def test_a_name_that_another_takes_meanwhile_is_not_the_last_one(tmp_path, monkeypatch):
    named = [name_folder(tmp_path)]

    def late(folder):
        """A name, and before it is used somebody has it."""
        named.append(folder / f"another-{len(named)}")
        if len(named) < 5:
            claim_folder(named[-1])
        return named[-1]

    monkeypatch.setattr(case_folder, "name_folder", late)
    claim_folder(named[0])
    assert make_some_folder(named[0], another=True) == named[4]


TAKEN = """
import sys
from pathlib import Path
from hanglab.harness.cli import main
from hanglab.harness.recording import case_folder
names = [Path("taken"), Path("taken"), Path("other")]
case_folder.name_folder = lambda folder: folder / names.pop(0)
sys.exit(main(["record", "--", "sh", "-c", "exit 7"]))
"""


def test_a_command_is_run_although_another_takes_the_name_of_its_folder(tmp_path):
    claim_folder(tmp_path / "taken")
    done = subprocess.run(
        [sys.executable, "-c", TAKEN],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 7, done.stderr
    assert (tmp_path / "other" / "manifest.json").is_file()
