"""A loop is not named for want of others, where it may have ended alike on all ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from hanglab.analyzer.branching.call_sites import CallHistory, ProgramCall
from hanglab.analyzer.branching.decision_points import Branch, branch_of
from hanglab.analyzer.branching.equal_values import EqualValues
from hanglab.analyzer.branching.partings import parting_of
from hanglab.analyzer.branching.program_graph import Chain, NotFollowed, ProgramGraph, ProgramPlace
from hanglab.analyzer.branching.source_code import Sources
from hanglab.recorder.agent.sources import functions_of

SWALLOWED = """\
def reduce(grads):
    for one in grads:
        all_reduce(one)
def train(steps, grads):
    for step in range(20):
        {attempt}
            forward()
            reduce(grads)
        {handled}
            log()
    barrier()
train(20, [])
"""
EXCHANGED = """\
def exchange(ops):
    for work in batch(ops):
        work.wait()
    all_reduce(1)
def main():
    for step in range(12):
        exchange(step)
main()
"""


def decide(
    path: Path,
    text: str,
    mine: list[list[int]],
    theirs: list[list[int]],
    *,
    survived: bool = False,
) -> Branch | None:
    """The statement between two ranks that came to these lines, outermost first; each is in its
    last call.  ``survived``: the first has handled an exception."""
    path.write_text(text)
    file = str(path)
    functions = {
        number: line.split()[1].partition("(")[0]
        for number, line in enumerate(text.splitlines(), 1)
        if line.startswith("def ")
    }

    def place(number: int) -> ProgramPlace:
        if not text.splitlines()[number - 1].startswith(" "):
            return ProgramPlace(file, "<module>", number)
        return ProgramPlace(file, functions[max(n for n in functions if n < number)], number)

    def history(rank: int, calls: list[list[int]]) -> CallHistory:
        chains: list[Chain] = [tuple(map(place, lines)) for lines in calls]
        sites = [ProgramCall(chain, True, None, True) for chain in chains]
        return CallHistory(rank, sites, True, chains[-1], False, False)

    both = history(1, mine), history(0, theirs)
    parting = parting_of(*both, by_own_calls=False)
    assert parting is not None
    chains = {site.chain for one in both for site in one.sites}
    places = {(one.function, one.line) for chain in chains for one in chain}
    sources = Sources(functions_of(file, sorted(places), 1 << 62))
    graph = ProgramGraph(sources, chains, chains)
    return branch_of(graph, EqualValues(sources), parting, survived, False)


@pytest.mark.parametrize(
    ("attempt", "handled", "named"),
    [("try:", "except RuntimeError:", False), ("with scope():", "if late():", True)],
)
def test_an_exception_may_have_been_handled_whether_or_not_it_was_seen(
    attempt: str, handled: str, named: bool, tmp_path: Path
) -> None:
    """Behind some calls of line 3 one rank is in the barrier, its peers in more of them."""
    text = SWALLOWED.format(attempt=attempt, handled=handled)
    reduce = [12, 8, 3]
    mine, theirs = [*[reduce] * 3, [12, 11]], [reduce] * 4
    if not named:
        with pytest.raises(NotFollowed):
            decide(tmp_path / "train.py", text, mine, theirs)
    else:
        branch = decide(tmp_path / "train.py", text, mine, theirs)
        assert branch is not None and branch.statement.lineno == 2


def test_calls_made_for_what_is_looped_over_are_no_rounds(tmp_path: Path) -> None:
    """A batch of four on one rank is one of two on the other, which goes on to line 4."""
    batch = [8, 7, 2]
    before = [batch, [8, 7, 4]]
    mine, theirs = [*before, batch, batch, [8, 7, 4]], [*before, *[batch] * 3]
    with pytest.raises(NotFollowed, match="for what it loops over"):
        decide(tmp_path / "train.py", EXCHANGED, mine, theirs)


BEGUN = """\
def begin(epoch):
    rows = read(epoch)
    barrier()
    return rows
def main():
    for epoch in range(8):
        for _ in range(begin(epoch)):
            all_reduce(1); all_reduce(2)
main()
"""


def test_a_line_of_two_calls_is_come_to_again_without_what_its_loop_goes_over(
    tmp_path: Path,
) -> None:
    """A barrier before the loop is no call between two rounds of it, so that nothing is told."""
    barrier, reduce = [9, 7, 3], [9, 8]
    mine, theirs = [barrier, *[reduce] * 5], [barrier, *[reduce] * 4, barrier]
    with pytest.raises(NotFollowed):
        decide(tmp_path / "train.py", BEGUN, mine, theirs)


PREPARED = """\
def prepare(rank):
    try:
        if rank:
            load()
        barrier()
    except OSError:
        pass
def main():
    prepare(0)
    all_reduce()
main()
"""


def test_of_an_exception_that_a_handler_took_others_met_none(tmp_path: Path) -> None:
    """It was raised within an if, which is not what is told of either."""
    branch = decide(tmp_path / "train.py", PREPARED, [[11, 10]], [[11, 9, 5]], survived=True)
    assert branch is not None and branch.statement.lineno == 2
    assert branch.mine == "came by an exception to the handler at line 6"
    assert branch.theirs == "met no exception there"
