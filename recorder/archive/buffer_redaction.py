"""Flight Recorder dumps without names: decoded without executing anything, and written anew."""

from __future__ import annotations

import io
import pickle
import pickletools
import re
from typing import Any

from hanglab.recorder.archive.pseudonyms import Pseudonyms

#: What real dumps are made of: plain containers, texts and numbers.
_OPCODES = frozenset(
    """PROTO FRAME STOP MARK NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT
    SHORT_BINUNICODE BINUNICODE EMPTY_DICT EMPTY_LIST EMPTY_TUPLE SETITEM SETITEMS APPEND APPENDS
    TUPLE TUPLE1 TUPLE2 TUPLE3 BINPUT LONG_BINPUT BINGET LONG_BINGET MEMOIZE
    SHORT_BINSTRING BINSTRING""".split()
)
#: Keys of an entry that are numbers, switches or shapes, or words of torch's own.
_PLAIN = frozenset(
    """record_id pg_id collective_seq_id p2p_seq_id op_id time_created_ns duration_ms input_sizes
    output_sizes input_dtypes output_dtypes state time_discovered_started_ns
    time_discovered_completed_ns retired timeout_ms is_p2p thread_id""".split()
)
_OPERATION = re.compile(r"[a-z0-9_]+:[A-Za-z0-9_ <>-]+|[A-Za-z0-9_]+")
_WORD = re.compile(r"[A-Za-z0-9_.]*")


class UnsafeBuffer(ValueError):
    """The bytes are no dump as torch writes them."""


def redact_buffer(data: bytes, names: Pseudonyms) -> bytes:
    """The dump with other names.  Raises UnsafeBuffer."""
    try:
        return pickle.dumps(_dump(_load(data), names), protocol=2)
    except RecursionError as error:
        raise UnsafeBuffer("a dump is not nested so deeply") from error


def _load(data: bytes) -> dict[str, Any]:
    try:
        for opcode, argument, _ in pickletools.genops(data):
            if opcode.name not in _OPCODES:
                raise UnsafeBuffer(f"a dump has no {opcode.name}")
            # The unpickler's table grows to the highest place that is named: nine bytes
            # would ask for 16 GiB.
            if opcode.name == "LONG_BINPUT" and argument is not None and argument > len(data):
                raise UnsafeBuffer(f"a dump of {len(data)} bytes has no {argument} objects")
        content = pickle.Unpickler(io.BytesIO(data)).load()
    except UnsafeBuffer:
        raise
    except Exception as error:
        raise UnsafeBuffer(f"cannot be decoded: {type(error).__name__}") from error
    if not isinstance(content, dict):
        raise UnsafeBuffer("a dump is a dictionary")
    return content


def _dump(content: dict[str, Any], names: Pseudonyms) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key in ("version", "nccl_version", "comm_lib_version"):
        if key in content:
            kept[key] = _plain(content[key])
    groups = content.get("pg_config")
    if isinstance(groups, dict):
        kept["pg_config"] = {
            names.group(str(name)): _group(group, names)
            for name, group in groups.items()
            if isinstance(group, dict)
        }
    status = content.get("pg_status")
    if isinstance(status, dict):
        kept["pg_status"] = {
            str(pg_id) if isinstance(pg_id, str) else pg_id: {
                str(name): _plain(value)
                for name, value in row.items()
                if re.fullmatch(r"last_[a-z]+_collective", str(name))
            }
            for pg_id, row in status.items()
            if isinstance(row, dict) and str(pg_id).isdecimal()
        }
    entries = content.get("entries")
    if isinstance(entries, (list, tuple)):
        kept["entries"] = [_entry(entry, names) for entry in entries if isinstance(entry, dict)]
    return kept


def _group(group: dict[Any, Any], names: Pseudonyms) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key in ("name", "desc"):
        if key in group:
            kept[key] = names.group(str(group[key]))
    if "ranks" in group:
        ranks = group["ranks"]
        safe = isinstance(ranks, str) and re.fullmatch(r"[\[\]\d, -]*", ranks)
        kept["ranks"] = ranks if safe else _plain(ranks)
    return kept


def _entry(entry: dict[Any, Any], names: Pseudonyms) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, value in entry.items():
        if key in _PLAIN:
            kept[key] = _plain(value)
        elif key == "process_group" and isinstance(value, (list, tuple)):
            kept[key] = tuple(names.group(str(name)) for name in value)
        elif key == "profiling_name":
            kept[key] = value if _OPERATION.fullmatch(str(value)) else "unknown"
        elif key == "thread_name":
            kept[key] = names.thread(str(value))
        elif key == "frames" and isinstance(value, (list, tuple)):
            kept[key] = [_frame(frame, names) for frame in value if isinstance(frame, dict)]
    return kept


def _frame(frame: dict[Any, Any], names: Pseudonyms) -> dict[str, Any]:
    file, line = str(frame.get("filename", "")), frame.get("line", 0)
    return {
        "name": names.function(str(frame.get("name", "")), file),
        "filename": names.file(file),
        "line": line if isinstance(line, int) else 0,
    }


def _plain(value: Any) -> Any:
    """Numbers, and texts that are single words; anything else is emptied."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, str):
        return value if _WORD.fullmatch(value) else ""
    if isinstance(value, (list, tuple)):
        return type(value)(_plain(item) for item in value)
    return None
