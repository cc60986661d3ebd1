"""``store_lost``: the process that kept the store ended well while its peers still needed it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hanglab.analyzer.causes.thresholds import KEEPER_NOTED_NS
from hanglab.analyzer.facts.case_facts import CaseFacts, RankView
from hanglab.analyzer.facts.collateral_exits import failures
from hanglab.analyzer.facts.error_texts import Kind, texts_of
from hanglab.analyzer.facts.failures import Failure
from hanglab.analyzer.facts.resource_failures import text_of
from hanglab.analyzer.proposal import Proposal, detector, propose
from hanglab.analyzer.strengths import CONFIRMED, SHOWN
from hanglab.analyzer.verdict import Cause, Evidence
from hanglab.analyzer.wording import name_ranks

_LOST = texts_of(Cause.STORE_LOST, Kind.CONSEQUENCE)


@dataclass(frozen=True)
class LostStore:
    """The rank that served a store and came to its end, and the failures of those who asked it."""

    view: RankView
    lost: list[Failure]


def lost_store(facts: CaseFacts) -> LostStore | None:
    """The store of a rank that ended well while others needed it; None where there is none."""
    lost = _lost(facts)
    keepers = _keepers(facts, lost)
    return LostStore(keepers[0], lost) if len(keepers) == 1 else None


def _lost(facts: CaseFacts) -> list[Failure]:
    found = failures(facts)
    lost = [t for t in found if _LOST.search(text_of(t))]
    if any(not t.consequence and t not in lost for t in found):
        return []  # a rank that failed for a reason of its own took the store with it
    return lost


def _keepers(facts: CaseFacts, lost: list[Failure]) -> list[RankView]:
    if not lost:
        return []
    first = min((t.at_ns for t in lost if t.at_ns), default=None)
    return [
        view
        for view in facts.ranks.values()
        if view.ended is not None
        and not view.failed
        and _served(facts, view, [t.view for t in lost])
        and (first is None or view.ended.at.wall_ns <= first + KEEPER_NOTED_NS)
    ]


@detector
def store_lost(facts: CaseFacts) -> Iterator[Proposal]:
    """Ranks whose calls to the store broke, after a rank that served it had come to its end."""
    lost = _lost(facts)
    keepers = _keepers(facts, lost)
    if lost and not keepers:
        yield from _keeper_child_ended(facts, lost)
    if len(keepers) != 1:
        return
    keeper = keepers[0]
    ranks = sorted(t.view.rank for t in lost)
    yield propose(
        facts,
        Cause.STORE_LOST,
        [keeper.rank],
        failure_on_record=True,
        confidence=CONFIRMED,
        summary=f"Rank {keeper.rank} kept the store of the job and came to its end while "
        f"{name_ranks(ranks)} still needed it.",
        evidence=[Evidence("exit", keeper.rank, "ended with code 0, and the store with it")]
        + [_row(failure) for failure in lost],
        victims=ranks,
    )


def _keeper_child_ended(facts: CaseFacts, lost: list[Failure]) -> Iterator[Proposal]:
    """A process that a rank had started kept the store, and was ended while its rank lives on."""
    clients = [failure.view for failure in lost]
    keepers = [
        (view, child)
        for view in facts.ranks.values()
        for child in view.children
        if child.signal is not None or child.code
    ]
    served = [row for row in keepers if _unserved_endpoints(facts, row[0])]
    if len({view.rank for view, _ in served}) != 1:
        return
    keeper, child = served[0]
    ranks = sorted(view.rank for view in clients)
    how = f"signal {child.signal}" if child.signal is not None else f"code {child.code}"
    yield propose(
        facts,
        Cause.STORE_LOST,
        [keeper.rank],
        failure_on_record=True,
        confidence=SHOWN,
        summary=f"A process that rank {keeper.rank} had started kept the store of the job and was "
        f"ended ({how}) while {name_ranks(ranks)} still needed it.",
        evidence=[
            Evidence("exit", keeper.rank, f"its child process {child.pid} ended with {how}"),
            *(
                Evidence("sockets", keeper.rank, f"no rank served {endpoint}, where peers were")
                for endpoint in sorted(_unserved_endpoints(facts, keeper))
            ),
            *(_row(failure) for failure in lost),
        ],
        victims=facts.others(keeper.rank),
    )


def _unserved_endpoints(facts: CaseFacts, view: RankView) -> set[str]:
    """Endpoints of the rank's own host that ranks were connected to, and no rank served."""
    neighbours = [v for v in facts.ranks.values() if v.host == view.host]
    addresses = {local.rpartition(":")[0] for v in neighbours for local, _ in _ends(v)}
    ranks_own = {local for v in facts.ranks.values() for local, _ in _ends(v)}
    ports = set[str]().union(*(_listened(v) for v in neighbours))
    used = {remote for v in facts.ranks.values() for _, remote in _ends(v)}
    return {
        endpoint
        for endpoint in used - ranks_own
        if endpoint.rpartition(":")[0] in addresses and endpoint.rpartition(":")[2] not in ports
    }


def _ends(view: RankView) -> set[tuple[str, str]]:
    """(local, remote) of every connection that the rank was seen with."""
    return {
        (connection.local, connection.remote)
        for sample in view.connections
        for connection in sample.connections
        if connection.state != "LISTEN"
    }


def _row(failure: Failure) -> Evidence:
    return Evidence(failure.source, failure.view.rank, failure.detail)


def _served(facts: CaseFacts, view: RankView, clients: list[RankView]) -> bool:
    """True if the rank listened where those that lost the store were connected to.

    A store that came and went between two samples was seen by nobody; then it
    is rank 0 that keeps it, as torch has it.
    """
    connected = {
        connection.remote.rpartition(":")[2]
        for client in clients
        for sample in client.connections
        for connection in sample.connections
        if connection.state != "LISTEN"
    }
    ended = [v for v in facts.ranks.values() if v.ended is not None and not v.failed]
    keepers = {v.rank for v in ended if _listened(v) & connected}
    return view.rank in keepers if keepers else view.rank == 0


def _listened(view: RankView) -> set[str]:
    """Ports on which the rank took connections."""
    return {
        connection.local.rpartition(":")[2]
        for sample in view.connections
        for connection in sample.connections
        if connection.state == "LISTEN"
    }
