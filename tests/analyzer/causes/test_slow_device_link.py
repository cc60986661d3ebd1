"""A slow link between two GPUs is told by the times of what passes it, whoever began first."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from hanglab.analyzer.causes.network.slow_device_link import slow_device_link
from hanglab.analyzer.facts.case_facts import CaseFacts
from tests.analyzer.causes.views import job, view
from tests.analyzer.matching.graph_rows import Row, columns, world

MESSAGES = 24
#: Time from one operation of a rank to its next, in milliseconds.
EVERY_MS = 40


def pipeline(
    transfer_ms: Callable[[int, int], float],
    *,
    waits_ms: Callable[[int, int, int], float] = lambda rank, peer, number: 0.0,
    hosts: Mapping[int, str] | None = None,
    every_ms: int = EVERY_MS,
) -> CaseFacts:
    """A job of four ranks that hand each other messages along a chain.

    ``transfer_ms(source, target)`` is the time of one, ``waits_ms(rank, peer, number)`` what the
    rank waited before, as it began earlier than its peer.
    """
    views = [view(rank) for rank in range(4)]
    dumps = {}
    for one in views:
        one.host = (hosts or {}).get(one.rank, "one")
        rows = []
        for number in range(MESSAGES):
            for source, target in ((0, 1), (1, 2), (2, 3)):
                if one.rank in (source, target):
                    half = "send" if one.rank == source else "recv"
                    peer = target if one.rank == source else source
                    took = transfer_ms(source, target) + waits_ms(one.rank, peer, number)
                    at = 1_000_000_000 + len(rows) * every_ms * 1_000_000
                    extra = {"duration_ms": took, "time_created_ns": at}
                    rows.append(
                        Row(f"{half} {source}->{target}", 0, p2p_seq=len(rows) + 1, extra=extra)
                    )
        dumps[one.rank] = columns(one.rank, rows, members=world(4))
    known = job(views, trigger=None)
    known.dumps = dumps
    known.case = True
    return known


def link(*ranks: int) -> Callable[[int, int], float]:
    """20 ms on the links between two of these ranks, 1 ms on others."""
    return lambda source, target: 20.0 if {source, target} <= set(ranks) else 1.0


def culprits(known: CaseFacts) -> list[list[int]]:
    return [found.finding.culprits for found in slow_device_link(known)]


def test_the_link_whose_transfers_take_far_longer_is_named_with_both_its_ends() -> None:
    (found,) = slow_device_link(pipeline(link(1, 2)))
    assert found.finding.culprits == [1, 2]
    assert "takes 20.0 ms for what takes others 1.0 ms" in found.finding.summary


def test_who_waits_for_a_peer_has_no_slow_link() -> None:
    """The receiver, or each end by turns, begins 20 ms before the other; the link takes 1 ms."""

    def receiver(rank: int, peer: int, number: int) -> float:
        return 20.0 if (rank, peer) == (2, 1) else 0.0

    def by_turns(rank: int, peer: int, number: int) -> float:
        return 20.0 if {rank, peer} == {1, 2} and number % 2 == (rank == 2) else 0.0

    for waits in (receiver, by_turns):
        assert culprits(pipeline(link(), waits_ms=waits)) == []
        assert culprits(pipeline(link(1, 2), waits_ms=waits)) == [[1, 2]]


def test_a_link_that_is_quick_now_and_then_is_sound() -> None:
    """Most of what rank 1 and rank 2 exchange waits for a processor, at both ends."""

    def crowded(rank: int, peer: int, number: int) -> float:
        return 20.0 if {rank, peer} == {1, 2} and number % 6 else 0.0

    assert culprits(pipeline(link(), waits_ms=crowded)) == []


@pytest.mark.parametrize("known", [
    pytest.param(pipeline(link(1, 2, 3)), id="all that rank 2 does is slow"),
    pytest.param(pipeline(link(2, 3)), id="rank 3 has this link alone, and may be slow itself"),
    pytest.param(pipeline(link(1, 2), hosts={2: "two", 3: "two"}), id="it leads to another host"),
    pytest.param(pipeline(link(1, 2), every_ms=2000), id="it costs 1 % of the time"),
    pytest.param(pipeline(lambda source, _: 0.9 if source == 1 else 0.1, every_ms=4), id="0.9 ms"),
])  # fmt: skip
def test_what_may_have_another_reason_is_not_told(known: CaseFacts) -> None:
    assert culprits(known) == []


def test_a_bare_folder_and_few_messages_tell_nothing() -> None:
    known = pipeline(link(1, 2))
    known.case = False
    assert culprits(known) == []
    known = pipeline(link(1, 2))
    for rank, dump in known.dumps.items():
        assert dump.entries is not None
        known.dumps[rank].entries.duration_ms[14:] = float("nan")
    assert culprits(known) == []
