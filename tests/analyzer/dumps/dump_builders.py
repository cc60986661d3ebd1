"""Dumps made by hand, and written as torch writes them."""

from __future__ import annotations

import struct
from typing import Any


def frames(*lines: int, name: str = "train", filename: str = "train.py") -> list[dict[str, Any]]:
    return [{"name": name, "filename": filename, "line": line} for line in lines]


def entry(record_id: int = 0, /, **changes: Any) -> dict[str, Any]:
    """An entry of format 2.10 that completed; ``changes`` replace or, if None is a key, add."""
    made: dict[str, Any] = {
        "frames": frames(10, 20),
        "record_id": record_id,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "thread_name": "python",
        "thread_id": "140",
        "collective_seq_id": record_id + 1,
        "p2p_seq_id": 0,
        "op_id": record_id + 1,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": 1_700_000_000_000_000_000 + record_id,
        "input_sizes": [[4, 2]],
        "input_dtypes": ["Float"],
        "output_sizes": [[4, 2]],
        "output_dtypes": ["Float"],
        "state": "completed",
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": 1_700_000_000_100_000_000,
        "retired": True,
        "timeout_ms": 600_000,
        "is_p2p": False,
    }
    made.update(changes)
    return made


def dump(entries: list[Any] | None = None, **changes: Any) -> dict[str, Any]:
    """A dump of format 2.10 of a job of two ranks; three entries by default."""
    made: dict[str, Any] = {
        "version": "2.10",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
        "comm_lib_version": "2.27.3",
        "pg_status": {
            "0": {
                "last_enqueued_collective": 3,
                "last_started_collective": -1,
                "last_completed_collective": 3,
            }
        },
        "entries": [entry(0), entry(1), entry(2)] if entries is None else entries,
    }
    made.update(changes)
    return made


def without(mapping: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in mapping.items() if key not in keys}


class _Writer:
    """torch's own writer: text is remembered, containers only where they are shared."""

    def __init__(self) -> None:
        self.out = bytearray(b"\x80\x02")
        self.memo: dict[Any, int] = {}

    def remember(self, key: Any) -> None:
        index = self.memo[key] = len(self.memo)
        self.out += struct.pack("<BB", 0x71, index) if index < 256 else b"r" + _u4(index)

    def recall(self, key: Any) -> bool:
        index = self.memo.get(key)
        if index is None:
            return False
        self.out += struct.pack("<BB", 0x68, index) if index < 256 else b"j" + _u4(index)
        return True

    def write(self, value: Any, shared: bool = False) -> None:
        if value is None:
            self.out += b"N"
        elif isinstance(value, bool):
            self.out += b"\x88" if value else b"\x89"
        elif isinstance(value, int):
            self.integer(value)
        elif isinstance(value, float):
            self.out += b"G" + struct.pack(">d", value)
        elif isinstance(value, str):
            if not self.recall(value):
                text = value.encode()
                self.out += b"X" + _u4(len(text)) + text
                self.remember(value)
        elif isinstance(value, tuple):
            for item in value:
                self.write(item)
            self.out += {1: b"\x85", 2: b"\x86", 3: b"\x87"}[len(value)]
        elif isinstance(value, list):
            self.out += b"]("
            for item in value:
                self.write(item, shared=isinstance(item, dict) and set(item) == _FRAME)
            self.out += b"e"
        else:
            key = tuple(value.items()) if shared else None
            if key is not None and self.recall(key):
                return
            self.out += b"}"
            if key is not None:
                self.remember(key)
            self.out += b"("
            for name, item in value.items():
                self.write(name)
                self.write(item)
            self.out += b"u"

    def integer(self, value: int) -> None:
        if 0 <= value < 256:
            self.out += struct.pack("<BB", 0x4B, value)
        elif 0 <= value < 65536:
            self.out += b"M" + struct.pack("<H", value)
        elif -(1 << 31) <= value < 1 << 31:
            self.out += b"J" + struct.pack("<i", value)
        else:
            self.out += b"\x8a\x08" + struct.pack("<q", value)


_FRAME = {"name", "filename", "line"}


def _u4(value: int) -> bytes:
    return struct.pack("<I", value)


def torch_pickle(value: Any) -> bytes:
    """``value`` as torch's pickler writes it."""
    writer = _Writer()
    writer.write(value)
    return bytes(writer.out + b".")


def json_form(value: dict[str, Any]) -> dict[str, Any]:
    """The JSON form of a dump: no frames, 0 for None, status in text, no empty entries."""
    made = dict(value)
    made["pg_status"] = {
        key: {name: str(number) for name, number in status.items()}
        for key, status in value.get("pg_status", {}).items()
    }
    rows = [
        {key: 0 if item is None else item for key, item in row.items() if key != "frames"}
        for row in value.get("entries", [])
    ]
    made["entries"] = [{**row, "process_group": list(row["process_group"])} for row in rows]
    if not rows:
        del made["entries"]
    return made
