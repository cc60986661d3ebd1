"""What a person gets to see derives from one root and says what to do next."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator

import pytest

import hanglab.analyzer
import hanglab.harness
import hanglab.recorder
from hanglab.recorder.errors import HanglabError

#: They steer the flow within one part, or travel in an answer: nobody sees one as it is.
INTERNAL = {
    "AgentLate",
    "BadArchive",
    "BadFrame",
    "BadMessage",
    "BadTrace",
    "BranchesLost",
    "ChannelClosed",
    "Damage",
    "DamagedProgress",
    "FolderRemoved",
    "MinimisationStopped",
    "NoAnswer",
    "NoBranches",
    "NoGroup",
    "NoProgram",
    "NoReply",
    "NoSockets",
    "NoStacks",
    "NotFollowed",
    "NotLiteral",
    "NotProgress",
    "NotYet",
    "OutcomeFailure",
    "Refused",
    "Refuted",
    "SocketNameTaken",
    "Stop",
    "UnsafeBuffer",
    "WorkerDied",
    "WrongKinds",
}


def exceptions() -> Iterator[type[BaseException]]:
    for package in (hanglab.analyzer, hanglab.harness, hanglab.recorder):
        for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if (
                "__main__" in found.name
                or ".hook." in found.name
                or found.name.endswith("warm_parent")
            ):
                continue
            try:
                module = importlib.import_module(found.name)
            except ImportError:  # an extra that is not installed
                continue
            for _, kind in inspect.getmembers(module, inspect.isclass):
                if kind.__module__ == found.name and issubclass(kind, BaseException):
                    yield kind


@pytest.fixture(scope="module")
def kinds() -> dict[str, type[BaseException]]:
    return {kind.__name__: kind for kind in exceptions()}


def test_every_error_has_the_one_root(kinds: dict[str, type[BaseException]]) -> None:
    strangers = {
        name
        for name, kind in kinds.items()
        if not issubclass(kind, HanglabError) and name.lstrip("_") not in INTERNAL
    }
    assert not strangers
    assert len(kinds) > 40


def test_what_is_called_internal_exists(kinds: dict[str, type[BaseException]]) -> None:
    assert {name.lstrip("_") for name in kinds} >= INTERNAL
