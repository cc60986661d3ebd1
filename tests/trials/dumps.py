"""Flight Recorder dumps of a play, as torch pickles them on NCCL (format 2.10)."""

from __future__ import annotations

import os
import pickle
from math import inf
from pathlib import Path

from .player import Play

START_NS = 1_795_222_000_000_000_000
#: After which NCCL's watchdog gives up, and has dumps written.
TIMEOUT_S = 600.0


def write_dumps(play: Play, folder: Path, moment: float = inf) -> None:
    """One file a rank, of the state at ``moment`` (milliseconds after the start).

    Without a moment they are written ten minutes after anything happened, as by a watchdog.
    """
    events = [t for mine in play.operations for one in mine for t in (one.created, one.done)]
    last = max((t for t in events if t < inf), default=0.0)
    written_s = START_NS / 1e9 + (last / 1e3 + TIMEOUT_S if moment == inf else moment / 1e3)
    for rank in range(len(play.program.ranks)):
        path = folder / f"rank_{rank}"
        path.write_bytes(pickle.dumps(dump(play, rank, moment), 2))
        os.utime(path, (written_s, written_s))


def dump(play: Play, rank: int, moment: float = inf) -> dict[str, object]:
    groups = {name: members for name, members in play.program.groups.items() if rank in members}
    ids = {name: number for number, name in enumerate(sorted(play.program.groups))}
    counts = {name: [0, 0, 0] for name in groups}  # collectives, point-to-point, all
    done = dict.fromkeys(groups, 0)
    entries: list[dict[str, object]] = []
    for played in sorted(play.operations[rank], key=lambda played: played.created):
        if played.created > moment:
            continue
        issue, ended = played.issue, played.done < inf and played.done <= moment
        p2p, count = issue.peer is not None, counts[issue.group]
        count[1 if p2p else 0] += 1
        count[2] += 1
        name = f"nccl:{issue.kind}"
        if issue.peer is not None:
            members = groups[issue.group]
            arrow = "->" if issue.kind == "send" else "<-"
            name += f" {members.index(rank)}{arrow}{members.index(issue.peer)}"
        elif ended:
            done[issue.group] = count[0]
        frames = [
            {"name": f"part_{played.thread}", "filename": "/job/train.py", "line": issue.line}
        ]
        entries.append({
            "frames": frames, "record_id": len(entries), "pg_id": ids[issue.group],
            "process_group": (issue.group, play.program.descriptions.get(issue.group, "group")),
            "thread_name": "python", "thread_id": str(140704563600256 + played.thread),
            "collective_seq_id": count[0], "p2p_seq_id": count[1] if p2p else 0,
            "op_id": count[2], "profiling_name": name,
            "time_created_ns": START_NS + int(played.created * 1e6),
            "input_sizes": [[issue.numel]], "input_dtypes": ["Float"],
            "output_sizes": [[issue.numel]], "output_dtypes": ["Float"],
            "state": "completed" if ended else "scheduled",
            "time_discovered_started_ns": None,
            "time_discovered_completed_ns": START_NS + int(played.done * 1e6) if ended else None,
            "retired": ended, "timeout_ms": 600_000, "is_p2p": p2p,
        })  # fmt: skip
    return {
        "version": "2.10", "comm_lib_version": "2.27.3", "nccl_comm_state": {},
        "pg_config": {
            name: {"name": name, "desc": play.program.descriptions.get(name, "group"),
                   "ranks": str(list(members))}
            for name, members in groups.items()
        },
        "pg_status": {
            str(ids[name]): {"last_enqueued_collective": counts[name][0],
                             "last_started_collective": -1,
                             "last_completed_collective": done[name]}
            for name in groups
        },
        "entries": entries,
    }  # fmt: skip
