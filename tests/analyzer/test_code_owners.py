"""Owners of code are told by where it lies, on this machine and on an unknown one."""

from __future__ import annotations

import sysconfig
import threading

import pytest

from hanglab.analyzer.code_owners import CodeMap, Owner
from hanglab.recorder.case.records import Python, StackFrame

HERE = Python(
    version="3.11",
    stdlib=[sysconfig.get_paths()["stdlib"]],
    site=["/venv/lib/python3.11/site-packages"],
    own=["/src/hanglab/recorder"],
    torch="/opt/torch",
)


@pytest.mark.parametrize(
    ("path", "owner"),
    [
        ("/home/me/train.py", Owner.USER),
        ("train.py", Owner.USER),
        ("/home/me/torch/train.py", Owner.USER),
        ("/home/me/lib/python3-tricks/a.py", Owner.USER),
        ("/opt/torch/distributed/distributed_c10d.py", Owner.TORCH),
        ("/venv/lib/python3.11/site-packages/torch/nn/x.py", Owner.TORCH),
        ("/venv/lib/python3.11/site-packages/transformers/trainer.py", Owner.PACKAGE),
        ("/elsewhere/lib/python3.12/site-packages/torch/x.py", Owner.TORCH),
        ("/venv/lib/python3.11/site-packages/hanglab/recorder/rank/boundary.py", Owner.RECORDER),
        ("/venv/lib/python3.11/site-packages/hanglab/scenarios/a/b.py", Owner.USER),
        ("/elsewhere/lib/python3.12/site-packages/hanglab/scenarios/a/b.py", Owner.USER),
        ("/usr/lib/python3/dist-packages/yaml/__init__.py", Owner.PACKAGE),
        ("/usr/lib/python3.10/threading.py", Owner.STDLIB),
        (threading.__file__, Owner.STDLIB),
        ("<frozen runpy>", Owner.STDLIB),
        ("/src/hanglab/recorder/rank/boundary.py", Owner.RECORDER),
    ],
)
def test_owner_follows_the_place_of_the_file(path: str, owner: Owner) -> None:
    assert CodeMap(HERE).owner(path) is owner


def test_packages_stand_in_only_where_no_user_code_is_on_the_stack() -> None:
    package = StackFrame("train", "/venv/lib/python3.11/site-packages/transformers/trainer.py", 9)
    user = StackFrame("main", "/home/me/run.py", 3)
    torch = StackFrame("wait", "/opt/torch/distributed/distributed_c10d.py", 1)
    code = CodeMap(HERE)
    assert code.innermost_user([torch, package, user]) == user
    assert code.innermost_user([torch, package]) == package
    assert code.innermost_user([torch]) is None


@pytest.mark.parametrize("place", ["", "/home/me/hanglab/build/namespace"])
def test_the_recorder_is_no_users_code_where_nothing_says_whence_it_runs(place: str) -> None:
    """As in dumps of an editable installation that lie in a folder without the rest of the Case."""
    wrapper = StackFrame("wrapper", f"{place}/hanglab/recorder/rank/boundary.py", 273)
    user = StackFrame("step", "/home/me/recorder/rank/train.py", 3)
    assert CodeMap().owner(wrapper.file) is Owner.RECORDER
    assert CodeMap().innermost_user([wrapper, user]) == user
