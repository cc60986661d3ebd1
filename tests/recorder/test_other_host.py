"""Processes of a recorded job on another host than that of ``hanglab record``."""

from __future__ import annotations

from pathlib import Path

import pytest

from hanglab.recorder.case import folders
from hanglab.recorder.rank.other_host import enter_host
from hanglab.recorder.rank.rank_recognition import attempt_of
from hanglab.recorder.system import socket_folders


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """As ``hanglab record`` on ``first`` gives it, in a process on ``second``."""
    monkeypatch.setenv("SLURMD_NODENAME", "second")
    monkeypatch.setattr(socket_folders, "_SHARED", tmp_path / "temporary")
    case = tmp_path / "case"
    folders.make_private(folders.host_folder(case, "first"))
    return {
        "HANGLAB_CASE": str(case),
        "HANGLAB_RUNTIME": "/tmp/hl-abcdefgh",
        "HANGLAB_HOST": "first",
        "TORCH_FR_DUMP_TEMP_FILE": f"{case}/hosts/first/timeout_dumps/rank_",
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": "/tmp/hl-abcdefgh/dump_",
        "KINETO_USE_DAEMON": "1",
        "KINETO_IPC_SOCKET_DIR": "/tmp/hl-abcdefgh",
        "DATA": "/tmp/hl-abcdefgh-of-the-job",
    }


def test_folders_are_those_of_its_own_host(environment: dict[str, str], tmp_path: Path) -> None:
    enter_host(environment)
    case = tmp_path / "case"
    runtime = socket_folders.of_host(case, "second")
    assert runtime.is_dir() and runtime.stat().st_mode & 0o777 == 0o700
    assert environment == {
        "HANGLAB_CASE": str(case),
        "HANGLAB_RUNTIME": str(runtime),
        "HANGLAB_HOST": "second",
        "TORCH_FR_DUMP_TEMP_FILE": f"{case}/hosts/second/timeout_dumps/rank_",
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{runtime}/dump_",
        "DATA": "/tmp/hl-abcdefgh-of-the-job",
    }
    again = dict(environment)
    enter_host(again)
    assert again == environment


def test_daemon_of_the_job_itself_is_left_to_it(environment: dict[str, str]) -> None:
    environment["KINETO_IPC_SOCKET_DIR"] = "/run/dynolog"
    enter_host(environment)
    assert environment["KINETO_USE_DAEMON"] == "1"


def test_nothing_is_recorded_where_the_case_is_not_seen(
    environment: dict[str, str], tmp_path: Path
) -> None:
    elsewhere = tmp_path / "on this host's own disk"
    enter_host(environment := {**environment, "HANGLAB_CASE": str(elsewhere)})
    assert "HANGLAB_CASE" not in environment
    assert not elsewhere.exists()


def test_nothing_changes_on_the_recording_host(environment: dict[str, str]) -> None:
    enter_host(environment := {**environment, "HANGLAB_HOST": "second"})
    assert environment["HANGLAB_RUNTIME"] == "/tmp/hl-abcdefgh"


def test_attempts_of_torchrun_and_of_slurm_add_up() -> None:
    assert attempt_of({}) == 0
    assert attempt_of({"TORCHELASTIC_RESTART_COUNT": "1"}) == 1
    assert attempt_of({"TORCHELASTIC_RESTART_COUNT": "1", "SLURM_RESTART_COUNT": "2"}) == 3


def test_folder_of_somebody_else_is_not_entered(tmp_path: Path) -> None:
    folder = tmp_path / "meetings" / "0123456789ab"
    folder.parent.mkdir(mode=0o777)
    folder.parent.chmod(0o777)
    with pytest.raises(PermissionError, match="is not this user's alone"):
        socket_folders.make_meeting(folder)
