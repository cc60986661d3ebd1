"""The player's own invariants, and frontiers that were worked out by hand."""

from __future__ import annotations

import json
import sys
from math import inf
from pathlib import Path
from random import Random

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.trials.dumps import dump
from tests.trials.player import play
from tests.trials.programs import SHAPES, Issue, Program, Step, Wait


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(20))
def test_a_program_without_fault_ends(shape: object, seed: int) -> None:
    assert callable(shape)
    assert not play(shape(Random(seed))).stuck


def states(dumped: dict[str, object]) -> list[str]:
    entries = json.loads(json.dumps(dumped["entries"]))
    return [entry["state"] for entry in entries]


def test_the_host_runs_ahead_of_a_peer_that_stopped() -> None:
    body: list[Step] = [Issue("0", "all_reduce", work=str(n)) for n in range(3)]
    played = play(Program("by hand", {"0": (0, 1)}, [[body], [body]]), host_stops={(1, 0): 1})
    assert states(dump(played, 0)) == ["completed", "scheduled", "scheduled"]
    assert states(dump(played, 1)) == ["completed"]


def test_a_host_wait_holds_the_thread_and_no_other() -> None:
    waiting: list[Step] = [Issue("0", "all_reduce", work="a"), Wait("a", host=True)]
    waiting += [Issue("0", "all_reduce")]
    aside: list[Step] = [Issue("1", "all_reduce")]
    groups: dict[str, tuple[int, ...]] = {"0": (0, 1), "1": (0, 1)}
    program = Program("by hand", groups, [[waiting, aside], [waiting, aside]])
    played = play(program, host_stops={(1, 0): 0})
    assert [(o.issue.group, o.done < inf) for o in played.operations[0]] == [
        ("0", False), ("1", True),
    ]  # fmt: skip
