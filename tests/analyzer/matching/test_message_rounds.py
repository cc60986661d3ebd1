"""When a rank's messages so far tell what it is to do: after whole rounds, not in the first."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from graph_rows import Row, columns, world

from hanglab.analyzer.graph.message_rounds import has_known_rounds


def known(ops: Sequence[str], *, lines: bool = False, numbered: bool = True) -> bool:
    """Whether what came before the last of ``ops`` tells; ``lines``: each has one of its own.

    ``numbered``: messages bear numbers, as in a buffer of torch's; the boundary has none.
    """
    number = {op: 10 + place for place, op in enumerate(dict.fromkeys(ops))}
    rows = [
        Row(
            op,
            1,
            line=number[op] if lines else 28,
            p2p_seq=place + 1 if numbered and "-" in op else 0,
        )
        for place, op in enumerate(ops)
    ]
    entries = columns(0, rows, members=world(3)).entries
    return has_known_rounds(entries, len(ops) - 1)


STEP = ("send 0->1", "send 0->1", "recv 0<-1", "recv 0<-1", "all_reduce")


@pytest.mark.parametrize(("rounds", "told"), [(1, False), (2, False), (3, True)])
def test_whole_rounds_tell(rounds: int, told: bool) -> None:
    """Between collectives of one kind: three of them have two rounds between them."""
    assert known([*STEP * rounds, "send 0->1"]) is told


def test_rounds_that_grow_tell_nothing() -> None:
    grown = [op for n in (1, 2, 3, 4) for op in ("send 0->1",) * n + ("recv 0<-1", "all_reduce")]
    assert not known([*grown, "send 0->1"])


@pytest.mark.parametrize(("count", "told"), [(127, False), (128, True)])
def test_many_messages_without_a_collective_tell(count: int, told: bool) -> None:
    """More than the microbatches of a step."""
    assert known([*["send 0->1", "send 0->2"] * (count - 1), "send 0->1", "recv 0<-1"]) is told


def test_rounds_alone_tell_sooner_than_many_messages() -> None:
    served = ["recv 0<-1", "recv 0<-2", "send 0->1", "send 0->2"]
    assert known([*served * 3, "recv 0<-1", "recv 0<-2", "send 0->2", "recv 0<-1"])
    # What they never had may be the next phase.
    assert not known([*served * 3, "send 0->3"])


def test_the_next_phase_of_a_schedule_is_not_known_by_the_one_before() -> None:
    """From one line: all that it did until then were sends to one peer."""
    assert not known(["send 0->1"] * 5 + ["recv 0<-1"])
    assert known(["send 0->1"] * 5 + ["send 0->2"])


@pytest.mark.parametrize("numbered", [True, False])
def test_a_line_of_one_exchange_tells_and_a_helper_does_not(numbered: bool) -> None:
    phases = ["send 0->1", "recv 0<-1", "send 0->1", "recv 0<-1", "send 0->1"]
    assert known(phases, lines=True, numbered=numbered)
    assert not known(phases, numbered=numbered)
