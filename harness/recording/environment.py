"""The environment of a recorded command: the start-up hook, and torch's Flight Recorder."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
from collections.abc import Mapping
from pathlib import Path

#: Entries that the buffer keeps; the default of torch 2.11 and later, which have it on.
_ENTRIES = "2000"

#: What is set, by the names that torch releases know it by: the first that torch finds counts.
_BUFFER = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
_DUMPS = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_ON_TIMEOUT = ("TORCH_FR_DUMP_ON_TIMEOUT", "TORCH_NCCL_DUMP_ON_TIMEOUT")
_PIPE = ("TORCH_NCCL_DEBUG_INFO_PIPE_FILE",)


def recorded_environment(
    caller: Mapping[str, str], case: Path, runtime: Path, host: Path
) -> dict[str, str]:
    """The caller's environment with what recording needs; what the caller has set stays.

    ``host`` is this host's folder in the Case.
    """
    from hanglab.recorder.rank import OWNER, hook_dir

    environment = {name: value for name, value in caller.items() if name != OWNER}
    settings = {
        _BUFFER: _ENTRIES,
        _ON_TIMEOUT: "1",
        _DUMPS: str(host / "timeout_dumps" / "rank_"),
        _PIPE: str(runtime / "dump_"),
    }
    known = known_names(_torch_release())
    for names, value in settings.items():
        if not any(name in environment for name in names):
            environment.update({name: value for name in names if name in known})
    environment.update(profiled(environment, runtime))
    path = environment.get("PYTHONPATH")
    hook = str(hook_dir())
    environment["PYTHONPATH"] = hook if not path else hook + os.pathsep + path
    environment["HANGLAB_CASE"] = str(case)
    environment["HANGLAB_RUNTIME"] = str(runtime)
    return environment


def profiled(environment: Mapping[str, str], runtime: Path) -> dict[str, str]:
    """What lets the agent ask the job's processes for traces, unless the caller's daemon does.

    Writes Kineto's own settings into the runtime folder.
    """
    if "KINETO_USE_DAEMON" in environment:
        return {}
    settings = {
        "KINETO_USE_DAEMON": "1",
        "KINETO_IPC_SOCKET_DIR": str(runtime),
        "KINETO_ONDEMAND_TRACE_DIR": str(runtime),
        # Errors only: it would announce itself and each stage of a trace on the job's stderr.
        "KINETO_LOG_LEVEL": environment.get("KINETO_LOG_LEVEL", "4"),
    }
    if "KINETO_CONFIG" not in environment:
        config = runtime / "kineto.conf"
        with contextlib.suppress(OSError):
            config.write_text("ON_DEMAND_CONFIG_UPDATE_INTERVAL_SECS=1\n")
            settings["KINETO_CONFIG"] = str(config)
    return settings


def known_names(release: tuple[int, int] | None) -> set[str]:
    """Names that a release of torch knows without a warning; all where it is not known."""
    old = {names[-1] for names in (_BUFFER, _DUMPS, _ON_TIMEOUT)}
    new = {names[0] for names in (_BUFFER, _DUMPS, _ON_TIMEOUT)}
    if release is None:
        return {*old, *new, *_PIPE}
    return {*(new if release >= (2, 10) else old | new), *_PIPE}


def _torch_release() -> tuple[int, int] | None:
    """Of the torch that is installed beside hanglab, without importing it."""
    try:
        major, minor = importlib.metadata.version("torch").split(".")[:2]
        return int(major), int(minor)
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return None
