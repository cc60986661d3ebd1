"""Dumps like real ones for benchmarks: 2,000 entries a rank with 10 frames each.

Bytes are those that torch's pickler would write.  In the last step one rank stays
away from an operation, so that all others wait, each in the group in which the
hang reaches it.  Ranks differ in the names and members of their groups, in every time, and
in where they ended.  Layouts: ``world`` has one group, ``2d`` tensor and data
parallel groups beside it, ``3d`` pipeline groups with sends and receives as well.
"""

from __future__ import annotations

import functools
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hanglab.analyzer.program.torch_pickle import torch_pickle

ENTRIES = 2000
FRAMES = 10
TENSOR = 8
#: Pipeline stages by layout.
STAGES = {"2d": 1, "3d": 4}
_SITES = 40
_START_NS = 1_700_000_000_000_000_000
#: The watchdog's dumps follow a timeout of ten minutes; nothing moves until then.
WRITTEN_NS = _START_NS + 610_000_000_000


@dataclass(frozen=True)
class Kind:
    """Ranks of one kind have the same dump but for the names and members of their groups."""

    #: "world", "2d" or "3d"
    layout: str
    #: "culprit", "tensor", "data" or "world": where the rank waits, if it does.
    waits: str
    stage: int = 0


def _frames() -> list[list[dict[str, Any]]]:
    """Stacks by call site; frames are shared between them as torch shares them."""
    torch = "/opt/venv/lib/python3.11/site-packages/torch"
    common = [
        {"name": "wrapper", "filename": f"{torch}/distributed/c10d_logger.py", "line": 83},
        {"name": "_call_impl", "filename": f"{torch}/nn/modules/module.py", "line": 1787},
        {"name": "_wrapped_call_impl", "filename": f"{torch}/nn/modules/module.py", "line": 1776},
        {"name": "train_step", "filename": "/srv/megatron/training/training.py", "line": 1203},
        {"name": "train", "filename": "/srv/megatron/training/training.py", "line": 2011},
        {"name": "pretrain", "filename": "/srv/megatron/training/training.py", "line": 702},
        {"name": "<module>", "filename": "/srv/pretrain_gpt.py", "line": 311},
    ]
    stacks = []
    for site in range(_SITES):
        own = [
            {
                "name": "collective",
                "filename": f"{torch}/distributed/distributed_c10d.py",
                "line": 2800 + site % 7,
            },
            {
                "name": "forward",
                "filename": "/srv/megatron/core/tensor_parallel/layers.py",
                "line": 200 + site,
            },
            {
                "name": "forward",
                "filename": "/srv/megatron/core/transformer/block.py",
                "line": 300 + site // 4,
            },
        ]
        stacks.append([own[0], common[0], own[1], own[2], *common[1:]][:FRAMES])
    return stacks


_NAMES = {
    "world": ("0", "default_pg", 0),
    "tensor": ("<TENSOR NAME>", "TENSOR_MODEL_PARALLEL_GROUP", 5),
    "data": ("<DATA NAME>", "DATA_PARALLEL_GROUP_WITH_CP", 1),
    "pipeline": ("<PIPELINE NAME>", "PIPELINE_MODEL_PARALLEL_GROUP", 6),
}


def _step(kind: Kind) -> list[tuple[str, str, list[int], list[int], int]]:
    """(group, operation, input size, output size, call site) of one training step."""
    if kind.layout == "world":
        return [
            ("world", "nccl:all_reduce", [1024 * (n + 1)], [1024 * (n + 1)], n) for n in range(40)
        ]
    step = []
    if kind.stage > 0:
        step.append(("pipeline", f"nccl:recv {kind.stage}<-{kind.stage - 1}", [4096], [4096], 0))
    for layer in range(16):
        step.append(("tensor", "nccl:_all_gather_base", [512, 5120], [4096, 5120], 1 + layer % 8))
        step.append(
            ("tensor", "nccl:_reduce_scatter_base", [4096, 5120], [512, 5120], 9 + layer % 8)
        )
    if kind.stage < STAGES[kind.layout] - 1:
        step.append(("pipeline", f"nccl:send {kind.stage}->{kind.stage + 1}", [4096], [4096], 17))
    for bucket in range(6):
        step.append(
            ("data", "nccl:all_reduce", [25_000_000 + bucket], [25_000_000 + bucket], 18 + bucket)
        )
    step.append(("world", "nccl:all_reduce", [1], [1], 30))
    return step


#: In the last step: how many operations of the step precede the one that is waited in.
def _reached(kind: Kind, step: list[tuple[str, str, list[int], list[int], int]]) -> int:
    """Share of the last step that the rank does; where it waits, the last of it is unfinished."""
    groups = [group for group, *_ in step]
    tensor = groups.index("tensor") + 4 if "tensor" in groups else 5
    if kind.waits == "culprit":
        return tensor
    if kind.waits == "tensor" or kind.layout == "world":
        return tensor + 1
    if kind.waits == "data":
        return groups.index("data") + 1
    return len(step)


def template(kind: Kind) -> bytes:
    """The pickle of a rank of this kind, with placeholders for names and members."""
    step = _step(kind)
    stacks = _frames()
    steps = ENTRIES // 40 + 1
    sequence = step * steps + step[: _reached(kind, step)]
    counts = dict.fromkeys(_NAMES, 0)
    sends = 0
    names = {group: (name, desc) for group, (name, desc, _) in _NAMES.items()}
    dtypes = ["BFloat16"]
    entries = []
    thread = ("pt_main_thread", "140120")
    for index, (group, operation, inputs, outputs, site) in enumerate(sequence):
        p2p = group == "pipeline"
        sends += p2p
        counts[group] += not p2p
        created = _START_NS + index * 700_000
        last = index == len(sequence) - 1
        done = not last or kind.waits == "culprit"
        entries.append(
            {
                "frames": list(stacks[site]),
                "record_id": index,
                "pg_id": _NAMES[group][2],
                "process_group": names[group],
                "thread_name": thread[0],
                "thread_id": thread[1],
                "collective_seq_id": counts[group],
                "p2p_seq_id": sends if p2p else 0,
                "op_id": counts[group] + (sends if p2p else 0),
                "profiling_name": operation,
                "time_created_ns": created,
                "input_sizes": [list(inputs)],
                "input_dtypes": dtypes,
                "output_sizes": [list(outputs)],
                "output_dtypes": dtypes,
                "state": "completed" if done else "scheduled",
                "time_discovered_started_ns": None,
                "time_discovered_completed_ns": created + 500_000 if done else None,
                "retired": done,
                "timeout_ms": 600_000,
                "is_p2p": p2p,
            }
        )
    used = [g for g in _NAMES if g in _groups(kind.layout)]
    waited = sequence[-1][0] if kind.waits != "culprit" else ""
    top = {
        "version": "2.10",
        "pg_config": {
            names[g][0]: {
                "name": names[g][0],
                "desc": names[g][1],
                "ranks": f"<{g.upper()} RANKS>",
            }
            for g in used
        },
        "comm_lib_version": "2.27.3",
        "pg_status": {
            str(_NAMES[g][2]): {
                "last_enqueued_collective": sends if g == "pipeline" else counts[g],
                "last_started_collective": -1,
                "last_completed_collective": (
                    sends if g == "pipeline" else counts[g] - (g == waited)
                ),
            }
            for g in used
        },
        "entries": entries[-ENTRIES:],
    }
    return torch_pickle(top)


def _text(text: str) -> bytes:
    data = text.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def _members(layout: str, world: int, rank: int) -> dict[str, tuple[int, list[int]]]:
    """Group -> (its number among its kind, its members)."""
    groups = {"world": (0, _everybody(world))}
    if layout == "world":
        return groups
    stages = STAGES[layout]
    data = world // (TENSOR * stages)
    stage, rest = divmod(rank, data * TENSOR)
    replica, column = divmod(rest, TENSOR)
    first = stage * data * TENSOR
    groups["tensor"] = (
        stage * data + replica,
        [first + replica * TENSOR + t for t in range(TENSOR)],
    )
    groups["data"] = (
        stage * TENSOR + column,
        [first + d * TENSOR + column for d in range(data)],
    )
    if "pipeline" in _groups(layout):
        groups["pipeline"] = (rest, [s * data * TENSOR + rest for s in range(stages)])
    return groups


@functools.lru_cache(maxsize=1)
def _everybody(world: int) -> list[int]:
    return list(range(world))


def _groups(layout: str) -> tuple[str, ...]:
    kinds = {
        "world": ("world",),
        "2d": ("world", "tensor", "data"),
        "3d": ("world", "tensor", "data", "pipeline"),
    }
    return kinds[layout]


def kind_of(layout: str, world: int, rank: int, culprit: int) -> Kind:
    if layout == "world":
        return Kind(layout, "culprit" if rank == culprit else "world")
    mine, theirs = _members(layout, world, rank), _members(layout, world, culprit)
    stage = mine["pipeline"][1].index(rank) if "pipeline" in mine else 0
    if rank == culprit:
        return Kind(layout, "culprit", stage)
    if rank in theirs["tensor"][1]:
        return Kind(layout, "tensor", stage)
    stuck = set(theirs["tensor"][1])
    if stuck & set(mine["data"][1]):
        return Kind(layout, "data", stage)
    return Kind(layout, "world", stage)


def dump_of(layout: str, world: int, rank: int, culprit: int) -> bytes:
    """The bytes of one rank's dump."""
    data = _with_everybody(kind_of(layout, world, rank, culprit), world)
    for old, new in _replacements(layout, world, rank):
        data = data.replace(_text(old), _text(new))
    return _at_its_own_times(data, rank)


@functools.cache
def _with_everybody(kind: Kind, world: int) -> bytes:
    """The template with the list of all ranks, which is the same in each dump."""
    return template(kind).replace(_text("<WORLD RANKS>"), _text(str(_everybody(world))))


def write_dumps(folder: Path, layout: str, world: int, culprit: int) -> int:
    """Write every rank's dump, each a file of its own; returns the bytes of all."""
    folder.mkdir(parents=True)
    total = 0
    for rank in range(world):
        data = dump_of(layout, world, rank, culprit)
        file = folder / f"rank_{rank}"
        file.write_bytes(data)
        os.utime(file, ns=(WRITTEN_NS, WRITTEN_NS))
        total += len(data)
    return total


def _at_its_own_times(data: bytes, rank: int) -> bytes:
    """No two ranks have a time in common: each is up to 0.2 ms later, by chance."""
    changed = np.frombuffer(data, dtype=np.uint8).copy()
    high = struct.pack("<q", _START_NS)[6:]
    # The two highest bytes of a time are the same for days.
    long = (changed[:-9] == 0x8A) & (changed[1:-8] == 8)
    places = np.flatnonzero(long & (changed[8:-1] == high[0]) & (changed[9:] == high[1]))
    bytes_of_each = places[:, None] + np.arange(2, 10)
    times = changed[bytes_of_each].view("<i8")
    times += np.random.default_rng(rank).integers(0, 200_000, times.shape)
    changed[bytes_of_each] = times.view(np.uint8)
    return changed.tobytes()


def _replacements(layout: str, world: int, rank: int) -> Iterator[tuple[str, str]]:
    offset = 1
    for group, (number, members) in _members(layout, world, rank).items():
        if group != "world":
            yield f"<{group.upper()} RANKS>", str(members)
            yield f"<{group.upper()} NAME>", str(offset * 10_000 + number)
            offset += 1
