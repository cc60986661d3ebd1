"""Facts that the workers of pytest-xdist are started with, so that they agree."""

from __future__ import annotations

import datetime
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController

_FOLDER = "hanglab_folder"
_DURATIONS = "hanglab_durations"
_folder_key = pytest.StashKey[Path]()
#: Where pytest's cache keeps how long items took.
DURATIONS_CACHE = "hanglab/durations"


def tell_worker(node: WorkerController, config: pytest.Config) -> None:
    """Fills what a worker is started with."""
    node.workerinput[_FOLDER] = str(run_folder(config))
    node.workerinput[_DURATIONS] = known_durations(config)


def is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def worker_name(config: pytest.Config) -> str:
    """Name such as ``gw0``; empty where tests run in pytest's only process."""
    return str(_input(config).get("workerid", ""))


def run_folder(config: pytest.Config) -> Path:
    """The folder of this run, the same in all its processes; not created yet."""
    told = _input(config).get(_FOLDER)
    if told is not None:
        return Path(told)
    if _folder_key not in config.stash:
        config.stash[_folder_key] = _new_folder(config)
    return config.stash[_folder_key]


def known_durations(config: pytest.Config) -> dict[str, float]:
    """Seconds that items took when they last ran, by name without the seed."""
    told = _input(config).get(_DURATIONS)
    if told is None and config.pluginmanager.hasplugin("cacheprovider"):
        told = config.cache.get(DURATIONS_CACHE, {}) if config.cache is not None else {}
    return told if isinstance(told, dict) else {}


def _input(config: pytest.Config) -> dict[str, Any]:
    told: dict[str, Any] = getattr(config, "workerinput", {})
    return told


def _new_folder(config: pytest.Config) -> Path:
    asked = config.option.hanglab_artifacts
    root = config.invocation_params.dir / (asked if asked is not None else "runs")
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    return root / f"{stamp}-{os.getpid()}"
