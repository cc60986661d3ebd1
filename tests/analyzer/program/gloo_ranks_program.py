"""Runs Programs for real on gloo, each rank a fork of this warm process, and dumps every rank.

Reads pickled jobs (the fields of Job) from standard input and answers each with a line once the
dumps of all its ranks are written, or with what went wrong.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace

from hanglab.analyzer.program import Action, Program

DEADLINE_S = 20.0
_DTYPES = {
    "Float": torch.float32,
    "Double": torch.float64,
    "BFloat16": torch.bfloat16,
    "Long": torch.int64,
    "Int": torch.int32,
}


@dataclass
class Job:
    """``expected[r]``: how many entries rank r will have, and how many of them finished."""

    program: Program
    stops: dict[int, int]
    expected: list[tuple[int, int]]
    folder: Path


def _call(action: Action, group: Any, members: tuple[int, ...], rank: int) -> list[Any]:
    """Start one action; returns its works."""
    count = len(members)
    tensor = torch.zeros(action.numel, dtype=_DTYPES[action.dtype])
    root = members[action.root] if action.root is not None else None
    mine = root == rank
    keywords: dict[str, Any] = {"group": group, "async_op": True}
    if action.op == "all_reduce":
        return [dist.all_reduce(tensor, **keywords)]
    if action.op == "broadcast":
        return [dist.broadcast(tensor, src=root, **keywords)]
    if action.op == "reduce":
        return [dist.reduce(tensor, dst=root, **keywords)]
    if action.op == "all_gather":
        outputs = [torch.zeros_like(tensor) for _ in range(count)]
        return [dist.all_gather(outputs, tensor, **keywords)]
    if action.op == "reduce_scatter":
        whole = torch.zeros(count * action.numel, dtype=tensor.dtype)
        return [dist.reduce_scatter_tensor(tensor, whole, **keywords)]
    if action.op == "gather":
        outputs = [torch.zeros_like(tensor) for _ in range(count)] if mine else None
        return [dist.gather(tensor, outputs, dst=root, **keywords)]
    if action.op == "scatter":
        inputs = [torch.zeros_like(tensor) for _ in range(count)] if mine else None
        return [dist.scatter(tensor, inputs, src=root, **keywords)]
    if action.op == "all_to_all":
        whole = torch.zeros(count * action.numel, dtype=tensor.dtype)
        return [dist.all_to_all_single(torch.zeros_like(whole), whole, **keywords)]
    if action.op == "barrier":
        return [dist.barrier(**keywords)]
    assert action.peer is not None
    peer = members[action.peer]
    operation = dist.isend if action.op == "send" else dist.irecv
    return [operation(tensor, peer, group=group)]


def _run(job: Job, rank: int) -> None:
    program = job.program
    store = dist.FileStore(str(job.folder / "store"), program.world_size)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=program.world_size)
    groups = [None]
    for group in program.groups[1:]:
        groups.append(dist.new_group(list(group.members), group_desc=group.description))
    # A send or receive that was waited for may not be waited for again: it never returns.
    running: list[Any] = []
    batch: list[Any] = []
    actions = program.actions[rank]
    for index, action in enumerate(actions):
        if job.stops.get(rank) == index:
            return
        members = program.groups[action.group].members
        works = _call(action, groups[action.group], members, rank)
        following = actions[index + 1] if index + 1 < len(actions) else None
        if action.batch:
            batch += works
            if following is None or following.batch != action.batch:
                _wait(batch)
        elif action.joins:
            running += works
            _wait(running)
        elif action.overlap:
            running += works
        else:
            _wait(works)
    _wait(running)


def _wait(works: list[Any]) -> None:
    while works:
        works.pop(0).wait()


def _rank(job: Job, rank: int) -> None:
    """A forked rank: run, and dump once everything that can happen has happened."""
    errors: list[str] = []

    def body() -> None:
        try:
            _run(job, rank)
        except BaseException as error:
            errors.append(f"{type(error).__name__}: {error}")

    threading.Thread(target=body, daemon=True).start()
    limit = time.monotonic() + DEADLINE_S
    while time.monotonic() < limit and not errors:
        entries = pickle.loads(_dump_fr_trace(True, False, False)).get("entries", [])
        finished = sum(entry["retired"] for entry in entries)
        if (len(entries), finished) == job.expected[rank]:
            break
        time.sleep(0.01)
    (job.folder / f"dump_{rank}").write_bytes(_dump_fr_trace(True, False, False))
    (job.folder / f"done_{rank}").write_text("\n".join(errors))
    # Nobody leaves while a peer may still need it.
    while time.monotonic() < limit and any(
        not (job.folder / f"done_{other}").exists() for other in range(job.program.world_size)
    ):
        time.sleep(0.01)
    os._exit(0)


def _perform(job: Job) -> str:
    children = []
    try:
        for rank in range(job.program.world_size):
            child = os.fork()
            if child == 0:
                signal.alarm(int(DEADLINE_S) + 10)
                _rank(job, rank)
            children.append(child)
        for child in list(children):
            os.waitpid(child, 0)
            children.remove(child)
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    return "done"


def main() -> None:
    os.environ.update(TORCH_FR_BUFFER_SIZE="2000", GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    os.environ.setdefault("TMPDIR", tempfile.gettempdir())
    print("ready", flush=True)
    while True:
        try:
            job = Job(*pickle.load(sys.stdin.buffer))
        except EOFError:
            return
        print(_perform(job), flush=True)


if __name__ == "__main__":
    main()
