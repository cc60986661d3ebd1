"""Switching torch's Flight Recorder on, under the names that the installed torch knows.

Names and defaults: see the sources of torch, ``FlightRecorder.hpp`` and
``ProcessGroupNCCL.hpp``.  From 2.10 on the older names still work, with a
warning; before, some of the newer ones are not known.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from hanglab.recorder.case import evidence_files as files

#: Entries that the buffer keeps; the default of torch 2.11 and later, which have it on.
_ENTRIES = "2000"
#: Each in the order in which torch looks for them.
_BUFFER = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
_DUMPS = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_ON_TIMEOUT = ("TORCH_FR_DUMP_ON_TIMEOUT", "TORCH_NCCL_DUMP_ON_TIMEOUT")
_PIPE = ("TORCH_NCCL_DEBUG_INFO_PIPE_FILE",)


def switches(environment: Mapping[str, str], runtime: Path, host: Path) -> dict[str, str]:
    """Variables to add to an environment; what it has already, by any name, stays.

    ``host`` is this host's folder in the Case.
    """
    known = known_names(torch_release())
    settings = {
        _BUFFER: _ENTRIES,
        _ON_TIMEOUT: "1",
        _DUMPS: os.path.abspath(host / files.TIMEOUT_DUMPS.name / "rank_"),
        _PIPE: os.path.abspath(runtime / "dump_"),
    }
    added: dict[str, str] = {}
    for names, value in settings.items():
        if not any(name in environment for name in names):
            added.update({name: value for name in names if name in known})
    return added


def known_names(release: tuple[int, int] | None) -> set[str]:
    """Names that a release of torch knows without a warning; all where it is not known."""
    old = {names[-1] for names in (_BUFFER, _DUMPS, _ON_TIMEOUT)}
    new = {names[0] for names in (_BUFFER, _DUMPS, _ON_TIMEOUT)}
    if release is None:
        return {*old, *new, *_PIPE}
    return {*(new if release >= (2, 10) else old | new), *_PIPE}


def torch_release() -> tuple[int, int] | None:
    """Release of the torch that is installed beside hanglab, without importing it."""
    # Agents take the name of a folder from here and need none of it.
    from importlib.metadata import PackageNotFoundError, version

    try:
        major, minor = version("torch").split(".")[:2]
        return int(major), int(minor)
    except (PackageNotFoundError, ValueError):
        return None
