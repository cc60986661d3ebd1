"""Dumps of the ring: the bytes that torch's own functions give, and the files that torch writes."""

from __future__ import annotations

import contextlib
import os
import pickle
from collections.abc import Callable
from typing import Any

import torch._C._distributed_c10d

from hanglab.analyzer.program.rendering import to_json
from hanglab.analyzer.program.torch_pickle import torch_pickle
from hanglab.harness.nccl_emulated.ring import ring_if_any

#: Its stubs leave the dumps out.
c10d: Any = torch._C._distributed_c10d
_FILES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_native: Callable[[bool, bool, bool], bytes] = c10d._dump_fr_trace


def dump_bytes(
    includeCollectives: bool | None = None,
    includeStackTraces: bool | None = None,
    onlyActive: bool | None = None,
) -> bytes:
    """As ``torch._C._distributed_c10d._dump_fr_trace``, whose place it takes."""
    content = _content(includeCollectives, includeStackTraces, onlyActive)
    if content is None:
        return _native(
            includeCollectives is not False, includeStackTraces is not False, bool(onlyActive)
        )
    return torch_pickle(content)


def dump_json(includeCollectives: bool | None = None, onlyActive: bool | None = None) -> bytes:
    """As ``_dump_fr_trace_json``."""
    content = _content(includeCollectives, False, onlyActive)
    if content is None:
        return _native_json(includeCollectives is not False, bool(onlyActive))
    return to_json(content)


_native_json: Callable[[bool, bool], bytes] = c10d._dump_fr_trace_json


def _content(
    collectives: bool | None, stacks: bool | None, active: bool | None
) -> dict[str, Any] | None:
    """Our own ring's, with what torch's has of other backends; None where we have none."""
    ring = ring_if_any()
    if ring is None or not ring.groups:
        return None
    wanted = collectives is not False, stacks is not False, bool(active)
    content = ring.content(*wanted)
    others = pickle.loads(_native(*wanted))
    if others.get("pg_status"):
        _add(content, others)
    return content


def _add(content: dict[str, Any], others: dict[str, Any]) -> None:
    """Groups of gloo beside ours, under numbers of their own."""
    ours = len(content["pg_config"])
    content["pg_config"] = {**others.get("pg_config", {}), **content["pg_config"]}
    for number, row in others["pg_status"].items():
        content["pg_status"][str(ours + int(number))] = row
    rows = others.get("entries", [])
    if rows:
        for row in rows:
            row["pg_id"] += ours
        content["entries"] = sorted(
            [*content.get("entries", []), *rows], key=lambda row: row["time_created_ns"]
        )


def replace_torchs_own() -> None:
    """Whoever asks torch for its ring gets the emulated one, as on a build with NCCL."""
    c10d._dump_fr_trace = dump_bytes
    c10d._dump_fr_trace_json = dump_json


def dump_file(rank: int) -> str:
    """File into which torch writes a dump at a timeout or a request: the variable, and the rank."""
    given = [os.environ[name] for name in _FILES if name in os.environ]
    default = os.path.expanduser("~/.cache/torch/comm_lib_trace_rank_")
    return f"{given[0] if given else default}{rank}"


def write_dump(rank: int, stacks: bool, only_active: bool) -> str:
    """Write a dump where torch would, and return the file's name; raises OSError."""
    file = dump_file(rank)
    os.makedirs(os.path.dirname(file) or ".", exist_ok=True)
    with open(file, "wb") as target:
        target.write(dump_bytes(True, stacks, only_active))
    return file


class DumpPipe:
    """torch's pipe: whatever is written into it asks for a dump, and stops nothing."""

    def __init__(self, rank: int) -> None:
        prefix = os.environ.get("TORCH_NCCL_DEBUG_INFO_PIPE_FILE")
        self._descriptor = -1
        if not prefix:
            return
        path = f"{prefix}{rank}.pipe"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        with contextlib.suppress(OSError):
            os.mkfifo(path, 0o666)
            self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)

    def asked(self) -> bool:
        if self._descriptor < 0:
            return False
        try:
            return bool(os.read(self._descriptor, 4096))
        except BlockingIOError:
            return False
