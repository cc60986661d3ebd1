"""The renderer writes what torch writes: random programs also run for real on gloo."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from installed import needs_torch
from random_programs import random_program

from hanglab.analyzer.program.faults import make_fault
from hanglab.analyzer.program.program import ROOTED, Program
from hanglab.analyzer.program.rendering import Style, render
from hanglab.analyzer.program.simulation import Run, simulate

pytestmark = needs_torch

#: Entry keys that differ from run to run.
_PASSING = ("frames", "time_created_ns", "thread_id", "thread_name", "timeout_ms")
#: Faults after which nobody runs into an operation that does not match its own.
_QUIET_FAULTS = ("stop", "group_order", "p2p_deadlock", "unmatched")


@pytest.fixture
def ranks() -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, "TORCH_FR_BUFFER_SIZE": "2000", "GLOO_SOCKET_IFNAME": "lo"}
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("gloo_ranks_program.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process
        assert process.poll() is None, "the ranks' parent died"
    finally:
        process.kill()
        process.wait()


def normalised(dump: dict[str, Any]) -> dict[str, Any]:
    entries = [
        {key: value for key, value in entry.items() if key not in _PASSING}
        for entry in dump.get("entries", [])
    ]
    # gloo's two threads write the last completed number without order: it may stay behind.
    status = {
        key: {name: number for name, number in one.items() if "completed" not in name}
        for key, one in dump.get("pg_status", {}).items()
    }
    return {"version": dump["version"], "status": status, "entries": entries}


def agrees(run: Run) -> bool:
    """True if all that meets is alike: gloo ends a process that gets another length."""
    shapes: dict[tuple[object, ...], tuple[object, ...]] = {}
    counts: Counter[tuple[object, ...]] = Counter()
    for rank, state in enumerate(run.ranks):
        for issued in state.issued:
            action = issued.action
            shape: tuple[object, ...] = (action.op, action.numel, action.dtype, action.root)
            key: tuple[object, ...] = (action.group, issued.seq)
            if action.p2p:
                me = run.program.groups[action.group].members.index(rank)
                ends = (me, action.peer) if action.op == "send" else (action.peer, me)
                counts[action.op, action.group, ends] += 1
                key = (action.group, ends, counts[action.op, action.group, ends])
                shape = (action.numel, action.dtype)
            if shapes.setdefault(key, shape) != shape:
                return False
    return True


def healthy(random: Random) -> Run:
    program = random_program(random, world=random.choice((2, 3, 4)))
    return simulate(program, "gloo")


def hung(random: Random) -> tuple[Run, dict[int, int]]:
    """A run that hangs without an operation that a root may finish early."""
    while True:
        world = random.choice((2, 3, 4))
        program = random_program(random, world=world)
        if any(action.op in ROOTED for mine in program.actions for action in mine):
            continue
        fault = make_fault(program, random.choice(_QUIET_FAULTS), random.randrange(world), random)
        if fault is None:
            continue
        run = simulate(fault.program, "gloo", stops=fault.stops)
        if run.stuck and agrees(run):
            return run, fault.stops


def perform(
    ranks: subprocess.Popen[bytes], run: Run, stops: dict[int, int], folder: Path
) -> list[dict[str, Any]]:
    """Run a program for real; the dumps by rank."""
    folder.mkdir()
    program: Program = run.program
    expected = []
    for rank in range(program.world_size):
        rendered = render(run, rank, Style(frames=False))
        entries = rendered.get("entries", [])
        finished = sum(entry["retired"] for entry in entries)
        expected.append((len(entries), finished))
    assert ranks.stdin is not None and ranks.stdout is not None
    ranks.stdin.write(pickle.dumps((program, stops, expected, folder)))
    ranks.stdin.flush()
    assert ranks.stdout.readline() == b"done\n"
    dumps = []
    for rank in range(program.world_size):
        errors = (folder / f"done_{rank}").read_text()
        assert errors == "", f"rank {rank}: {errors}"
        dumps.append(pickle.loads((folder / f"dump_{rank}").read_bytes()))
    return dumps


def compare(run: Run, dumps: list[dict[str, Any]]) -> None:
    for rank, dump in enumerate(dumps):
        rendered = render(run, rank, Style(frames=False))
        assert normalised(dump) == normalised(rendered), f"rank {rank}"


def test_a_few_programs(ranks: subprocess.Popen[bytes], tmp_path: Path) -> None:
    random = Random(1)
    for number in range(4):
        run = healthy(random)
        compare(run, perform(ranks, run, {}, tmp_path / f"healthy{number}"))
    run, stops = hung(random)
    compare(run, perform(ranks, run, stops, tmp_path / "hung"))


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("block", range(10))
def test_two_hundred_and_twenty_programs(
    ranks: subprocess.Popen[bytes], tmp_path: Path, block: int
) -> None:
    random = Random(1000 + block)
    for number in range(14):
        run = healthy(random)
        compare(run, perform(ranks, run, {}, tmp_path / f"healthy{number}"))
    for number in range(8):
        run, stops = hung(random)
        compare(run, perform(ranks, run, stops, tmp_path / f"hung{number}"))
