"""How the recorder gets into ranks, and only into ranks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hanglab.recorder.rank import hook_dir
from hanglab.recorder.rank.process import environment
from hanglab.recorder.rank.rank_recognition import is_rank

REPORT = "import os, sys; print(os.environ.get('HANGLAB_RANK_PID') == str(os.getpid()))"


def run(tmp_path: Path, *command: str, **extra: str) -> str:
    environment = {
        **{k: v for k, v in os.environ.items() if k not in ("RANK", "HANGLAB_RANK_PID")},
        "HANGLAB_CASE": str(tmp_path / "case"),
        "PYTHONPATH": str(hook_dir()),
        **extra,
    }
    done = subprocess.run(
        [sys.executable, *command],
        env={name: value for name, value in environment.items() if value},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.strip()


def test_hook_folder_holds_nothing_that_could_shadow():
    assert [p.name for p in hook_dir().iterdir() if p.name != "__pycache__"] == ["sitecustomize.py"]


def test_rank_is_recorded_and_nothing_else(tmp_path):
    assert run(tmp_path, "-c", REPORT, RANK="3", WORLD_SIZE="4") == "True"
    process = json.loads(next((tmp_path / "case").rglob("process.json")).read_bytes())
    assert (process["rank"], process["world_size"]) == (3, 4)
    assert run(tmp_path, "-c", REPORT) == "False", "no RANK, no rank"
    assert run(tmp_path, "-c", REPORT, RANK="0", HANGLAB_CASE="") == "False"
    nested = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {REPORT!r}])"
    assert run(tmp_path, "-c", nested, RANK="1") == "False", "a rank's own child is no rank"


def test_second_process_of_a_rank_gets_a_folder_of_its_own(tmp_path):
    for _ in range(2):
        run(tmp_path, "-c", REPORT, RANK="0")
    assert sorted(p.parent.name for p in (tmp_path / "case").rglob("process.json")) == [
        "0.0",
        "0.1",
    ]


def test_hidden_sitecustomize_runs_too(tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "sitecustomize.py").write_text("seen = True\n")
    path = os.pathsep.join([str(hook_dir()), str(other)])
    code = "import sitecustomize; print(sitecustomize.seen, sitecustomize.__file__)"
    for rank in ("", "0"):
        shown = run(tmp_path, "-c", code, PYTHONPATH=path, RANK=rank)
        assert shown == f"True {other / 'sitecustomize.py'}"


def test_import_is_light(tmp_path):
    code = (
        "import sys; import hanglab.recorder.rank.recorder;"
        "print([m for m in ('torch', 'numpy', 'msgspec', 'asyncio', 'subprocess') "
        "if m in sys.modules])"
    )
    assert run(tmp_path, "-c", code) == "[]"


def test_what_is_no_rank(monkeypatch):
    good = {"HANGLAB_CASE": "/x", "RANK": "0"}
    monkeypatch.setattr(sys, "orig_argv", ["python", "-u", "train.py"])
    assert is_rank(good)
    assert not is_rank({**good, "RANK": ""})
    assert not is_rank({**good, "HANGLAB_RANK_PID": "1"})
    for words in (
        ["python", "/usr/bin/torchrun", "train.py"],
        ["python", "-m", "torch.distributed.run", "train.py"],
        ["python", "-c", "from multiprocessing.spawn import x", "--multiprocessing-fork"],
        ["python", "-c", "from multiprocessing.resource_tracker import main;main(5)"],
    ):
        monkeypatch.setattr(sys, "orig_argv", words)
        assert not is_rank(good), words


@pytest.mark.parametrize("name", ["API_KEY", "NCCL_TOKEN", "HANGLAB_FAULT", "HOME", "HF_TOKEN"])
def test_environment_is_filtered(name):
    given = {name: "x", "NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": "/home/me/log"}
    assert environment(given) == {"NCCL_DEBUG": "INFO"}


def test_post_import_hook_leaves_the_module_as_it_was(tmp_path):
    (tmp_path / "victim.py").write_text("value = 1\n")
    code = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
from hanglab.recorder.rank.imports import AfterImport
seen = []
after = AfterImport()
after.add("victim", seen.append)
after.add("json", lambda module: 1 / 0 if module is None else seen.append(module))
import json, victim
assert [m.__name__ for m in seen] == ["json", "victim"], seen
assert after not in sys.meta_path
assert victim.__loader__ is victim.__spec__.loader
assert type(victim.__loader__).__name__ == "SourceFileLoader"
after.add("victim", seen.append)
assert len(seen) == 3
"""
    run(tmp_path, "-c", code)
