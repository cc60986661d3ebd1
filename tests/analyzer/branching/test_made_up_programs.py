"""Decisions in programs made up at random, against what Python did when it ran them."""

from __future__ import annotations

import ast
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from hanglab.analyzer.branching.call_sites import CallHistory, ProgramCall
from hanglab.analyzer.branching.decision_points import Branch, branch_of
from hanglab.analyzer.branching.equal_values import EqualValues
from hanglab.analyzer.branching.partings import parting_of
from hanglab.analyzer.branching.program_graph import Chain, NotFollowed, ProgramGraph, ProgramPlace
from hanglab.analyzer.branching.source_code import Sources
from hanglab.recorder.agent.sources import functions_of
from tests.analyzer.branching.made_up_programs import Event, Run, make_up, run

#: Some 0.03 s each; 2,000 of them were looked at when this was written.
PROGRAMS = 400


def _chain(file: str, event: Event) -> Chain:
    return tuple(ProgramPlace(file, function, line) for function, line in event.chain)


def _calls(one: Run) -> list[int]:
    return [i for i, event in enumerate(one.events) if event.communicates]


def _history(rank: int, file: str, one: Run, most: int) -> CallHistory:
    """A rank's calls, the last of which it is still in where it made as many as ``most``."""
    calls = _calls(one)[:most]
    sites = [ProgramCall(_chain(file, one.events[i]), True, None, True) for i in calls]
    inside = len(calls) == most
    now = sites[-1].chain if inside else None
    return CallHistory(rank, sites, True, now, False, False)


def _went_apart(branch: Branch, mine: list[Event], theirs: list[Event]) -> bool:
    """True if two runs went on from one of the statement's lines, each another way."""
    statement = branch.statement
    first, last = statement.lineno, statement.lineno
    if isinstance(statement, ast.Try):
        last = statement.end_lineno or last
    elif not isinstance(statement, ast.If | ast.While | ast.For):
        # An expression decides: one of the two made the call.
        made = [
            any(e.line == first and e.communicates for e in events) for events in (mine, theirs)
        ]
        return made[0] != made[1]

    def followers(events: list[Event]) -> set[tuple[int, int]]:
        return {(a.line, b.line) for a, b in pairwise(events) if first <= a.line <= last}

    return bool(followers(mine) - followers(theirs)) and bool(followers(theirs) - followers(mine))


@pytest.mark.slow
@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(0, PROGRAMS, 2), id="even"),
        pytest.param(range(PROGRAMS), id="all", marks=pytest.mark.long),
    ],
)
def test_what_is_named_is_what_sent_the_ranks_apart(tmp_path: Path, seeds: range) -> None:
    outcomes: Counter[str] = Counter()
    wrong: list[str] = []
    for seed in seeds:
        text = make_up(seed)
        path = tmp_path / f"made_up_{seed}.py"
        path.write_text(text)
        file = str(path)
        usual = run(text, file, seed, -1, False)
        for odd_at in (3, 5, 8, 13):
            odd = run(text, file, seed, odd_at, odd_at == 8)
            lines = [[_chain(file, one.events[i]) for i in _calls(one)] for one in (odd, usual)]
            index = next(
                (i for i, (a, b) in enumerate(zip(*lines, strict=False)) if a != b),
                min(map(len, lines)),
            )
            mine = _history(1, file, odd, index + 1)
            theirs = _history(0, file, usual, index + 1)
            parting = parting_of(mine, theirs, by_own_calls=False)
            if parting is None or (not parting.mine and not odd.ended):
                continue
            chains = {site.chain for one in (mine, theirs) for site in one.sites}
            places = {(place.function, place.line) for chain in chains for place in chain}
            sources = Sources(functions_of(file, sorted(places), 1 << 62))
            graph = ProgramGraph(sources, chains, chains)
            try:
                branch = branch_of(graph, EqualValues(sources), parting, odd_at == 8, False)
            except NotFollowed:
                outcomes["not told"] += 1
                continue
            if branch is None:
                outcomes["none"] += 1
                continue
            outcomes["told"] += 1
            parts = []
            for one in (odd, usual):
                calls = _calls(one)
                begin = calls[index - 1] + 1 if index else 0
                end = calls[index] + 1 if index < len(calls) else len(one.events)
                parts.append(one.events[begin:end])
            if not _went_apart(branch, *parts):
                wrong.append(f"program {seed}, question {odd_at}: line {branch.statement.lineno}")
    assert not wrong
    assert outcomes["told"] > outcomes["not told"] + outcomes["none"]
