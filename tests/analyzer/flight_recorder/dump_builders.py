"""Dumps made by hand, to be written as torch writes them."""

from __future__ import annotations

from typing import Any

from hanglab.analyzer.flight_recorder.columns import RankDump
from hanglab.analyzer.program.torch_pickle import torch_pickle

__all__ = ["dump", "entry", "frames", "json_form", "same", "torch_pickle", "without"]


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


def json_form(value: dict[str, Any]) -> dict[str, Any]:
    """The JSON form of a dump: no frames, 0 for None, status in text, no empty entries."""
    made = dict(value)
    made["pg_status"] = {
        key: {name: str(number) for name, number in status.items()}
        for key, status in value.get("pg_status", {}).items()
    }
    rows: list[dict[str, Any]] = [
        {key: 0 if item is None else item for key, item in row.items() if key != "frames"}
        for row in value.get("entries", [])
    ]
    made["entries"] = [{**row, "process_group": list(row["process_group"])} for row in rows]
    if not rows:
        del made["entries"]
    return made


def same(one: RankDump, other: RankDump) -> bool:
    """Equal in everything that can be compared without regard to how it was written."""
    if (one.entries is None) != (other.entries is None):
        return False
    if one.entries is not None and other.entries is not None:
        for name, column in vars(one.entries).items():
            if isinstance(column, list):
                if column != getattr(other.entries, name):
                    return False
            elif not _equal(column, getattr(other.entries, name)):
                return False
    highest_entered = [{**vars(item), "entries": None} for item in (one, other)]
    return highest_entered[0] == highest_entered[1]


def _equal(one: Any, other: Any) -> bool:
    pairs = zip(one.tolist(), other.tolist(), strict=True)
    return all(a == b or (a != a and b != b) for a, b in pairs)
