"""Flight Recorder dumps of a play, as torch writes them: on NCCL, on gloo, by version."""

from __future__ import annotations

import json
import os
import pickle
from dataclasses import dataclass
from math import ceil, inf
from pathlib import Path

from hanglab.harness.trials.losses import Loss
from hanglab.harness.trials.player import Play, Played
from hanglab.harness.trials.programs import Group, Issue, Program, issues_of

START_NS = 1_795_222_000_000_000_000
#: Milliseconds between two looks of NCCL's watchdog, which retires what has ended.
WATCHDOG_MS = 100.0
#: Number of the thread that makes calls of a backward pass.
BACKWARD_THREAD = 9
#: How long after the job its files were copied, where they lost their times: later than anybody
#: would have dumped it.
COPIED_S = 3 * 86_400.0


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a ring; ``part`` is None for the end of a batch."""

    played: Played
    part: Issue | None
    group: str
    collective: int
    p2p: int
    operation: int
    state: str
    retired: bool

    @property
    def name(self) -> str:
        return "coalesced" if self.part is None else self.part.kind

    @property
    def is_message(self) -> bool:
        """Of messages, too, where it ends a batch of them, of which torch does not tell."""
        return issues_of(self.played.step)[0].peer is not None


@dataclass(frozen=True, slots=True)
class Ring:
    entries: list[Entry]  # those that are left
    dropped: int
    #: Of each entry that is left, how many the rank had made before it.
    numbers: list[int]
    #: For each group: numbers of what was issued last, and of the last that was seen to end.  Sends
    #: and receives have numbers of their own, and set these as well (``WorkNCCL::seq_`` and
    #: ``workEnqueue`` in ``ProcessGroupNCCL.cpp``).
    status: dict[str, tuple[int, int]]


def moment_of(play: Play, rank: int, loss: Loss) -> float:
    """Milliseconds after the start at which the rank was dumped, never ``inf``."""
    return min(loss.moments[rank], play.last_event + loss.waited_s * 1e3)


def is_visible(program: Program, issue: Issue, loss: Loss) -> bool:
    """Buffers hold the operation at all."""
    if program.groups[issue.group].backend == "gloo" and issue.peer is not None:
        return False  # Gloo's buffers have no point-to-point; only the numbers show it.
    return is_group_visible(program, issue.group, loss)


def is_group_visible(program: Program, group: str, loss: Loss) -> bool:
    """Buffers hold operations of the group."""
    if program.groups[group].backend == "nccl":
        return True
    nccl = any(one.backend == "nccl" for one in program.groups.values())
    return not nccl or loss.gloo_beside


def ring_of(play: Play, rank: int, loss: Loss) -> Ring:
    """The content of the rank's buffer at its moment."""
    program, moment = play.program, moment_of(play, rank, loss)
    counts: dict[str, list[int]] = {}
    status: dict[str, tuple[int, int]] = {}
    ended_at: dict[str, float] = {}
    entries: list[Entry] = []
    nccl = any(group.backend == "nccl" for group in program.groups.values())
    for played in play.operations[rank]:
        if played.created > moment:
            break
        group = played.group
        gloo = program.groups[group].backend == "gloo"
        if gloo and nccl and not loss.gloo_beside:
            continue
        count = counts.setdefault(group, [0, 0, 0])
        parts = issues_of(played.step)
        p2p = parts[0].peer is not None
        batch = played.step is not parts[0]
        count[1 if p2p else 0] += 1
        done = played.done <= moment
        seen = ceil(played.done / WATCHDOG_MS) * WATCHDOG_MS <= moment if done else False
        if gloo:
            seen = done
        if not (gloo and p2p):  # Gloo's do not pass through its queue, but are counted there.
            number = count[2] + 1 if gloo else count[1] if p2p else count[0]
            ended = status.get(group, (0, 0))[1]
            turn = ceil(played.done / WATCHDOG_MS) if seen else -1
            if turn >= ended_at.get(group, 0):
                ended, ended_at[group] = number, turn
            status[group] = number, ended
        state = "scheduled"
        if done and not gloo:
            state = "completed"
        elif not gloo and loss.timing and played.started <= moment:
            state = "started"
        for part in parts:
            count[2] += 1
            if not is_visible(program, part, loss):
                continue
            entries.append(
                Entry(
                    played, part, group, count[0], 0 if gloo else count[1], count[2],
                    "scheduled" if batch else state, seen and not batch,
                )
            )  # fmt: skip
        if batch and not gloo:
            entries.append(Entry(played, None, group, count[0], count[1], count[2], state, seen))
    size = loss.rings[rank]
    kept = list(enumerate(entries))[-size:]
    if loss.active_only:
        kept = [(n, one) for n, one in kept if not (one.state == "completed" or one.retired)]
    numbers = [number for number, _ in kept]
    return Ring([one for _, one in kept], max(0, len(entries) - size), numbers, status)


def write_dumps(
    play: Play, folder: Path, loss: Loss, *, prefix: str = "rank_", later_s: float = 0
) -> None:
    """One file a rank; ``later_s`` shifts all times, for jobs that ran after another."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank in range(play.program.size):
        if rank in loss.missing:
            continue
        in_json = rank in loss.json
        path = folder / f"{prefix}{rank}{'.json' if in_json else ''}"
        value = dump(play, rank, loss, start_ns=START_NS + int(later_s * 1e9))
        path.write_bytes(json.dumps(as_json(value)).encode() if in_json else pickle.dumps(value, 2))
        written_s = START_NS / 1e9 + later_s + moment_of(play, rank, loss) / 1e3
        if not loss.file_times:
            written_s = START_NS / 1e9 + COPIED_S + rank / 100
        os.utime(path, (written_s, written_s))


def dump(play: Play, rank: int, loss: Loss, *, start_ns: int = START_NS) -> dict[str, object]:
    program, ring, moment = play.program, ring_of(play, rank, loss), moment_of(play, rank, loss)
    version = loss.versions[rank]
    nccl = any(group.backend == "nccl" for group in program.groups.values())
    mine = program.groups_of(rank)
    ids = {group: number for number, group in enumerate(mine)}  # each process counts its own
    entries = []
    for number, entry in zip(ring.numbers, ring.entries, strict=True):
        played, group = entry.played, program.groups[entry.group]
        done = played.done if entry.state == "completed" else inf
        seen = min(ceil(done / WATCHDOG_MS) * WATCHDOG_MS, moment) if done < inf else None
        started = played.started if entry.state in ("completed", "started") else None
        inputs, outputs = sizes(entry.part, rank, group) if entry.part else ([], [])
        dtype = entry.part.dtype if entry.part else ""
        one: dict[str, object] = {
            "record_id": number,
            "pg_id": ids[entry.group],
            "process_group": (program.name(rank, entry.group), group.description),
            "collective_seq_id": entry.collective,
            "p2p_seq_id": entry.p2p,
            "op_id": entry.operation,
            "profiling_name": profiling_name(entry, rank, group.members, group.backend),
            "time_created_ns": start_ns + int(played.created * 1e6),
            "input_sizes": inputs,
            "input_dtypes": [dtype] * len(inputs),
            "output_sizes": outputs,
            "output_dtypes": [dtype] * len(outputs),
            "state": entry.state,
            "time_discovered_started_ns": None
            if started is None or not loss.timing
            else start_ns + int(started * 1e6),
            "time_discovered_completed_ns": None if seen is None else start_ns + int(seen * 1e6),
            "retired": entry.retired,
            "timeout_ms": 600_000 if group.backend == "nccl" else 1_800_000,
            # Of a batch's end torch asks its own kind, which is neither send nor receive.
            "is_p2p": entry.part is not None and entry.is_message,
        }
        if version != "2.4":
            handed_over = played.thread == 0 and played.step.line in loss.backward
            thread = BACKWARD_THREAD if handed_over else played.thread
            one |= {
                "thread_name": "pt_autograd_0" if handed_over else "python",
                "thread_id": str(140704563600256 + thread),
            }
        if loss.frames:
            frame = {"name": f"part_{played.thread}", "filename": "/job/train.py"}
            one = {"frames": [{**frame, "line": played.step.line}], **one}
        entries.append(one)
    config: dict[str, object]
    if nccl:
        config = {
            name: {"name": name, "desc": program.groups[g].description,
                   "ranks": str(list(program.groups[g].members))}
            for g in mine if program.groups[g].backend == "nccl"
            for name in (program.name(rank, g),)
        }  # fmt: skip
    else:
        config = {"": {"name": "", "desc": "", "ranks": "[]"}}
    status = {
        str(ids[group]): {
            "last_enqueued_collective": issued if issued else -1,
            "last_started_collective": -1,
            "last_completed_collective": ended if ended else -1,
        }
        for group, (issued, ended) in ring.status.items()
    }
    library = "nccl_version" if version in ("2.4", "2.9") else "comm_lib_version"
    top: dict[str, object] = {
        "version": version,
        library: "2.27.3" if nccl else "",
        "pg_config": config,
    }
    top |= {"pg_status": status, "entries": entries}
    return top if version == "2.4" or not nccl else {**top, "nccl_comm_state": {}}


def profiling_name(entry: Entry, rank: int, members: tuple[int, ...], backend: str) -> str:
    part = entry.part
    if part is None:
        return f"{backend}:coalesced"
    if part.peer is not None:
        arrow = "->" if part.kind == "send" else "<-"
        return f"{backend}:{part.kind} {members.index(rank)}{arrow}{members.index(part.peer)}"
    return f"{backend}:{_NAMES[backend].get(part.kind, part.kind)}"


_NAMES = {
    "nccl": {
        "all_gather": "_all_gather_base",
        "reduce_scatter": "_reduce_scatter_base",
        "barrier": "all_reduce_barrier",
    },
    "gloo": {"reduce_scatter": "all_reduce"},
}

Sizes = list[list[int]]


def sizes(part: Issue, rank: int, group: Group) -> tuple[Sizes, Sizes]:
    """Shapes of inputs and outputs, as torch records them."""
    n, every = part.numel, part.numel * len(group.members)
    if part.gives:
        return [[sum(part.gives)]], [[sum(part.takes)]]
    if part.kind == "barrier":
        return ([[1]], [[1]]) if group.backend == "nccl" else ([], [])
    if part.kind == "all_gather":
        return [[n]], [[every]]
    if part.kind == "reduce_scatter":
        return [[every]], [[n]]
    if part.kind == "gather":
        return [[n]], [[n] for _ in group.members] if part.root == rank else []
    return [[n]], [[n]]


def as_json(dumped: dict[str, object]) -> dict[str, object]:
    """The form that ``_dump_fr_trace_json`` writes."""
    value = json.loads(json.dumps(dumped))
    for entry in value["entries"]:
        entry.pop("frames", None)
        for key in ("time_discovered_started_ns", "time_discovered_completed_ns"):
            entry[key] = entry[key] or 0
    value["pg_status"] = {
        group: {key: str(number) for key, number in status.items()}
        for group, status in value["pg_status"].items()
    }
    if not value["entries"]:
        del value["entries"]
    return dict(value)
