"""Small rings as torch writes them, of ranks that run the same program."""

from __future__ import annotations

from typing import Any

from hanglab.analyzer.program.torch_pickle import torch_pickle

_START_NS = 1_700_000_000_000_000_000
_FRAMES = [{"name": f"f{n}", "filename": "train.py", "line": n} for n in range(2)]


def ring(rank: int, *, entries: int = 14) -> bytes:
    """A dump of two kinds of entries; ranks differ in names, numbers, times and the end."""
    groups = [("0", "default_pg"), (f"{1 + rank}", "tensor")]
    rows = [_entry(n, groups[n % 2], rank) for n in range(entries - rank % 2)]
    config = {name: {"name": name, "desc": desc, "ranks": "[0, 1]"} for name, desc in groups}
    return torch_pickle({"version": "2.10", "pg_config": config, "entries": rows})


def _entry(number: int, group: tuple[str, str], rank: int) -> dict[str, Any]:
    created = _START_NS + number * 1000 + rank
    return {
        "frames": _FRAMES[number % 2 :],
        "record_id": number + 300,
        "pg_id": number % 2,
        "process_group": group,
        "collective_seq_id": number // 2 + 1,
        "p2p_seq_id": 0,
        "op_id": number // 2 + 1,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": created,
        "input_sizes": [[4]],
        "input_dtypes": ["Float"],
        "output_sizes": [[4]],
        "output_dtypes": ["Float"],
        "state": "completed",
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": created + 500,
        "retired": True,
        "timeout_ms": 600_000,
        "is_p2p": False,
    }
