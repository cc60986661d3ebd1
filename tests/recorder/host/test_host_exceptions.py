"""What is written of an exception beside its text: what led to it, and which disk was full."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hanglab.harness.capabilities import capability
from hanglab.recorder.rank.exceptions import describe

ROOT = Path(__file__).parents[3]


def test_the_errors_that_led_to_one_are_told_the_latest_first() -> None:
    try:
        try:
            try:
                raise OSError(28, "No space left on device")
            except OSError as error:
                raise ValueError("no checkpoint") from error
        except ValueError as error:
            raise RuntimeError("given up") from error
    except RuntimeError as error:
        told = describe(error, error.__traceback__, "MainThread", True)
    assert told["because"] == [
        "ValueError: no checkpoint",
        "OSError: [Errno 28] No space left on device",
    ]
    try:
        try:
            raise OSError(28, "No space left on device")
        except OSError:
            raise KeyError("x") from None
    except KeyError as error:
        assert describe(error, None, "MainThread", True)["because"] == []


def test_a_write_that_fails_names_the_disk_without_room(tmp_path: Path) -> None:
    able = capability("private_mounts")
    if not able.available:
        pytest.skip(able.reason)
    text = (
        "import json\n"
        "from hanglab.harness.system.mounts import mount_disk\n"
        "from hanglab.recorder.rank import full_file_systems\n"
        "from hanglab.recorder.rank.exceptions import describe\n"
        # A busy machine takes longer than a rank that fails is held up for.
        "full_file_systems._PATIENCE_S = 250.0\n"
        f"folder = mount_disk(1, {str(tmp_path)!r})\n"
        "def told(work):\n"
        "    try:\n"
        "        work()\n"
        "    except Exception as error:\n"
        "        return describe(error, None, 'MainThread', True)['full']\n"
        "rows = [told(lambda: (folder / 'x').write_bytes(bytes(2 << 20))), told(lambda: 1 / 0)]\n"
        "print(json.dumps(rows))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=True, timeout=280
    )
    full, other = json.loads(ran.stdout)
    # Another job of this machine may have a full one, too.
    (own,) = [disk for disk in full if disk["path"] == str(tmp_path)]
    assert (own["filesystem"], own["size_bytes"], own["free_bytes"]) == ("tmpfs", 1 << 20, 0)
    assert other == [], "an error of another kind looks at no disk"


def test_what_ends_a_thread_is_loaded_before_descriptors_are_used_up(tmp_path: Path) -> None:
    """Without torch nothing else loads it, and the rank would abort at its end."""
    hook = ROOT / "recorder" / "rank" / "hook"
    ran = subprocess.run(
        [sys.executable, "-c", "print('libgcc_s' in open('/proc/self/maps').read())"],
        env={
            "PYTHONPATH": str(hook), "PATH": "/usr/bin:/bin", "RANK": "0", "WORLD_SIZE": "1",
            "HANGLAB_CASE": str(tmp_path / "case"), "HANGLAB_RUNTIME": str(tmp_path),
        },
        capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (0, "True\n"), ran.stderr


def test_an_exception_is_written_down_without_a_descriptor_left(tmp_path: Path) -> None:
    text = (
        "import os, resource\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n"
        "files = []\n"
        "while True:\n"
        "    files.append(open(os.devnull))\n"
    )
    hook = ROOT / "recorder" / "rank" / "hook"
    ran = subprocess.run(
        [sys.executable, "-c", text],
        env={
            "PYTHONPATH": str(hook), "PATH": "/usr/bin:/bin", "RANK": "0", "WORLD_SIZE": "1",
            "HANGLAB_CASE": str(tmp_path / "case"), "HANGLAB_RUNTIME": str(tmp_path),
        },
        capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    assert ran.returncode == 1 and "Too many open files" in ran.stderr
    (path,) = (tmp_path / "case").glob("hosts/*/ranks/0.0/exceptions.jsonl")
    assert json.loads(path.read_text().splitlines()[0])["message"].startswith("[Errno 24]")
