"""Texts as launchers, torch and kernels write them, and dumps beside them."""

from __future__ import annotations

import json
from pathlib import Path

SECOND = 1_000_000_000
#: 2026-03-01 12:00:00 UTC.
NOON = 1_772_366_400 * SECOND
RAISED = (
    'Traceback (most recent call last):\n  File "/w/train.py", line 33, in main\n'
    "    batch = data[index]\nKeyError: 'labels'\n"
)
TIMED_OUT = (
    "[rank{rank}]:[E301 12:10:00.500 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught "
    "collective operation timeout: WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={size}, "
    "NumelOut={size}, Timeout(ms)=600000) ran for 600014 milliseconds before timing out.\n"
    "[rank{rank}]:[E301 12:10:00.501 ProcessGroupNCCL.cpp:2271] [PG ID 0 PG GUID 0(default_pg) "
    "Rank {rank}]  failure detected by watchdog at work sequence id: {seq} PG status: last "
    "enqueued work: {seq}, last completed work: {before}\n"
)
OBSERVED = (
    "[rank{rank}]:[E301 12:10:00.900 ProcessGroupNCCL.cpp:1743] [PG ID 0 PG GUID 0(default_pg) "
    "Rank {rank}] Observed flight recorder dump signal from another rank via TCPStore. Last "
    "enqueued NCCL work: {seq}, last completed NCCL work: {seq}.\n"
)
TABLE = (
    "Root Cause (first observed failure):\n[0]:\n  time      : 2026-03-01_12:00:01\n"
    "  host      : node1\n  rank      : {rank} (local_rank: {local})\n"
    "  exitcode  : {code} (pid: {pid})\n  error_file: <N/A>\n"
)


def named(rank: int, text: str = RAISED) -> str:
    """A traceback as torch writes it, with the rank before each line."""
    return "".join(f"[rank{rank}]: {line}\n" for line in text.splitlines())


def timed_out(rank: int, seq: int = 7, op: str = "ALLREDUCE", size: int = 64) -> str:
    return TIMED_OUT.format(rank=rank, seq=seq, op=op, size=size, before=seq - 1)


def write_dump(folder: Path, rank: int, size: int, *, entered: bool) -> None:
    """A dump of a rank that is in its second all_reduce since noon, or not."""
    entries = [
        {
            "frames": [],
            "record_id": seq - 1,
            "pg_id": 0,
            "process_group": ["0", "default_pg"],
            "collective_seq_id": seq,
            "p2p_seq_id": 0,
            "op_id": seq,
            "profiling_name": "nccl:all_reduce",
            "time_created_ns": NOON + seq * SECOND,
            "input_sizes": [[64]],
            "input_dtypes": ["Float"],
            "output_sizes": [[64]],
            "output_dtypes": ["Float"],
            "state": "completed" if seq == 1 else "started",
            "time_discovered_started_ns": NOON + seq * SECOND,
            "time_discovered_completed_ns": NOON + seq * SECOND if seq == 1 else None,
            "retired": seq == 1,
            "timeout_ms": 600000,
            "is_p2p": False,
        }
        for seq in ((1, 2) if entered else (1,))
    ]
    document = {
        "version": "2.10",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(size)))}},
        "pg_status": {},
        "entries": entries,
    }
    (folder / f"nccl_trace_rank_{rank}").write_text(json.dumps(document))
