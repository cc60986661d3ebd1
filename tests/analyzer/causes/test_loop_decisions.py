"""Loops of as many rounds on every rank, and what may take a rank out of them all the same."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from views import C10D, job, user, view

from hanglab.analyzer.facts.host import HostView
from hanglab.analyzer.facts.loop_decisions import line_that_may_fail, not_for_input
from hanglab.analyzer.facts.loops import left_loops
from hanglab.recorder.case.reader import HostCase
from hanglab.recorder.case.records import CodeLoop, CodeShape, SourceFunction, StackFrame

FILE = "/home/me/train.py"
#: Line of the loop with an operation, and one behind the loop.
INSIDE, BEHIND = 20, 30


def loop(within: str = "") -> list[str]:
    """Lines 10 to 40 of train(): a loop of lines 15 to 25, with another one ``within`` it."""
    lines = {10: "def train(items):", 15: "    for x in range(9):", 20: "        reduce()"}
    if within:
        lines |= {19: f"        for one in {within}:", 20: "            reduce()"}
    lines |= {25: "        step()", 30: "    reduce()", 40: "    return"}
    return [lines.get(number, "") for number in range(10, 41)]


def caller(*body: str) -> list[str]:
    """Lines 50 to 60 of fit(), which calls train() in line 53 and goes on in line 56."""
    return ["def fit(items):", "    begin()", *body, "    reduce()", *[""] * 4, "    return"]


@pytest.mark.parametrize(
    ("fit", "stands", "told"),
    [
        (caller("    begin()", "    train(items)", "    end()", "    end()"), 56, True),
        # Who handles an exception there may have been taken out of the loop by the end of input.
        (caller("    try:", "        train(items)", "    except E:", "        end()"), 56, False),
        (
            caller("    with suppress(E):", "        train(items)", "    end()", "    end()"),
            56,
            False,
        ),
        (caller("    try:", "        train(items)", "    finally:", "        end()"), 56, True),
        # What it is still in has handled nothing.
        (caller("    try:", "        train(items)", "    except E:", "        end()"), 53, True),
        ([], 56, False),
    ],
)
def test_a_caller_that_handles_exceptions_leaves_the_reason_open(
    fit: list[str], stands: int, told: bool, tmp_path: Path
) -> None:
    wait = StackFrame("all_reduce", C10D, 3245)
    gone = view(0, wait, *([user(BEHIND)] if stands == 53 else []), user(stands, "fit"))
    peers = [view(rank, wait, user(INSIDE), user(53, "fit")) for rank in (1, 2, 3)]
    for peer in peers:
        peer.shapes = [CodeShape(FILE, "train", 10, 40, [CodeLoop(15, 25, None)])]
    facts = job([gone, *peers])
    rows = [SourceFunction(FILE, "train", 10, 40, lines=loop(), checksum="1")]
    if fit:
        rows.append(SourceFunction(FILE, "fit", 50, 60, lines=fit, checksum="1"))
    (tmp_path / "sources.json").write_bytes(msgspec.json.encode(rows))
    facts.hosts[facts.ranks[0].host] = HostView(case=HostCase(tmp_path, []))
    assert left_loops(facts, 0)
    assert bool(not_for_input(facts, 0, left_loops(facts, 0))) is told


@pytest.mark.parametrize(
    ("within", "told"),
    [
        ("model.parameters()", True),
        ("enumerate(self.net.named_parameters())", True),
        ("(1, 2, 3)", True),
        ("loader", False),
        ("items.batches()", False),
        ("model.parameters(rank)", False),  # not torch's
    ],
)
def test_a_loop_over_the_parts_of_a_model_is_none_over_input(
    within: str, told: bool, tmp_path: Path
) -> None:
    wait = StackFrame("all_reduce", C10D, 3245)
    peers = [view(rank, wait, user(INSIDE)) for rank in (1, 2, 3)]
    for peer in peers:
        peer.shapes = [CodeShape(FILE, "train", 10, 40, [CodeLoop(15, 25, None)])]
    facts = job([view(0, wait, user(BEHIND)), *peers])
    rows = [SourceFunction(FILE, "train", 10, 40, lines=loop(within), checksum="1")]
    (tmp_path / "sources.json").write_bytes(msgspec.json.encode(rows))
    facts.hosts[facts.ranks[0].host] = HostView(case=HostCase(tmp_path, []))
    assert left_loops(facts, 0)
    assert bool(not_for_input(facts, 0, left_loops(facts, 0))) is told


@pytest.mark.parametrize(
    ("guard", "line"),
    [
        ({18: "        try:", 20: "            reduce()", 21: "        except E:"}, INSIDE),
        ({18: "        with suppress(E):", 20: "            reduce()"}, INSIDE),
        ({20: "        reduce()", 21: "        try:", 23: "        except E:"}, None),
        # It takes the rank out of the loop, not on to its next round.
        ({14: "    try:", 26: "    except E:"}, None),
    ],
)
def test_a_loop_that_handles_what_fails_in_a_round_may_go_on_with_the_next(
    guard: dict[int, str], line: int | None, tmp_path: Path
) -> None:
    inner = "    " if 14 in guard else ""
    lines = {
        10: "def train(items):",
        15: f"{inner}    for x in range(9):",
        20: f"{inner}        reduce()",
        22: f"{inner}{'    ' if guard.get(18) or 23 in guard else ''}        step()",
        24: f"{inner}        step()",
        27: "        end()",
        **guard,
    }
    if 14 not in guard:
        del lines[27]
    if 21 in guard and 18 in guard:
        lines[22] = "            step()"
    source = [lines.get(number, "") for number in range(10, 41)]
    wait = StackFrame("all_reduce", C10D, 3245)
    gone = view(0, wait, user(BEHIND))
    peers = [view(rank, wait, user(INSIDE)) for rank in (1, 2)]
    for peer in peers:
        peer.shapes = [CodeShape(FILE, "train", 10, 40, [CodeLoop(15, 25, None)])]
    facts = job([gone, *peers])
    rows = [SourceFunction(FILE, "train", 10, 40, lines=source, checksum="1")]
    (tmp_path / "sources.json").write_bytes(msgspec.json.encode(rows))
    facts.hosts[facts.ranks[0].host] = HostView(case=HostCase(tmp_path, []))
    assert line_that_may_fail(facts, 0, left_loops(facts, 0)) == line
