"""A job that never formed: who did not get to the meeting point, and who only waited there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from hanglab.analyzer.causes.thresholds import LISTED_ROWS
from hanglab.analyzer.facts.case_facts import CaseFacts, RankView
from hanglab.analyzer.facts.collateral_exits import failures
from hanglab.analyzer.facts.error_texts import (
    JOIN_TIMED_OUT,
    MESH_FAILED,
    MISSED_CLIENTS,
    PEER_AT_LOOPBACK,
    PORT_TAKEN,
    UNREACHED,
)
from hanglab.analyzer.facts.failures import Failure
from hanglab.analyzer.facts.rendezvous_ports import (
    SEEKING,
    RankPorts,
    ranks_elsewhere,
    standing_of,
)
from hanglab.analyzer.facts.resource_failures import location_of, text_of
from hanglab.analyzer.facts.stack_position import StackPlace
from hanglab.analyzer.proposal import Proposal, detector, propose
from hanglab.analyzer.strengths import CONFIRMED, SEEN, SHOWN
from hanglab.analyzer.verdict import Cause, Evidence, Finding, Status
from hanglab.analyzer.wording import name_line, name_ranks

#: What must be the same on all ranks for them to meet.
_MEETING = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "TORCHELASTIC_RUN_ID")
_INIT = frozenset({"init_process_group"})


@detector
def rendezvous(facts: CaseFacts) -> Iterator[Proposal]:
    """Nobody has got beyond the meeting point: whoever is not there is why."""
    if not facts.case:
        yield from _not_come(facts)
        return
    other = _of_another_size(facts)
    if other is not None:
        yield other
        return
    if any(_has_operated(view) for view in facts.ranks.values()):
        return
    if facts.stuck:
        yield from _hung_joining(facts)
    else:
        yield from _at_loopback(facts)
        yield from _failed_joining(facts)


def _has_operated(view: RankView) -> bool:
    return bool(view.groups) or (view.progress is not None and view.progress.operations_total > 0)


def _of_another_size(facts: CaseFacts) -> Proposal | None:
    """Ranks that joined as one of another number than most, and have got no further.

    Their peers may have: these have found as many as they were told to expect.
    """
    sizes = {
        view.rank: view.process.world_size
        for view in facts.ranks.values()
        if view.process is not None and view.process.world_size is not None
    }
    (usual, votes), *others = Counter(sizes.values()).most_common() or [(0, 0)]
    odd = sorted(rank for rank, size in sizes.items() if size != usual)
    if not facts.stuck or not others or 2 * votes <= len(sizes):
        return None
    if any(_has_operated(facts.ranks[rank]) for rank in odd):
        return None
    return _proposal(
        facts,
        odd,
        f"{name_ranks(odd).capitalize()} joined the job as one of {sizes[odd[0]]} ranks, the "
        f"others as one of {usual}.",
        [Evidence("environment", rank, f"its world size is {sizes[rank]}") for rank in odd],
    )


def _hung_joining(facts: CaseFacts) -> Iterator[Proposal]:
    alive = [view for view in facts.ranks.values() if view.ended is None]
    there = [view for view in alive if view.position.place is StackPlace.RENDEZVOUS]
    if not there or len(there) < len(alive):
        return  # whoever stands elsewhere is told of by what it does there
    if any(view.failed for view in facts.ranks.values()):
        return  # its error says more
    absent = sorted(
        {view.rank for view in facts.ranks.values() if view.ended is not None}
        | set(facts.inputs.missing_ranks)
    )
    if absent:
        yield _proposal(
            facts,
            absent,
            f"{name_ranks(absent).capitalize()} never came to the rendezvous of the job; the "
            "others wait there.",
            [Evidence("exit", rank, _why_absent(facts, rank)) for rank in absent],
        )
        return
    odd = _differing(facts)
    if odd:
        ranks, words = odd
        yield _proposal(
            facts,
            ranks,
            f"{name_ranks(ranks).capitalize()} was given other rendezvous settings than its peers.",
            [Evidence("environment", rank, words) for rank in ranks],
        )
        return
    standings = [standing_of(view) for view in there]
    away, port = _cannot_reach_store(facts, standings), ""
    if not away and (elsewhere := ranks_elsewhere(standings)) is not None:
        port, away = elsewhere
    if away:
        ranks = [one.rank for one in away]
        yield _proposal(
            facts,
            ranks,
            f"{name_ranks(ranks).capitalize()} cannot reach the rendezvous of the job; the others "
            f"wait there{f', at port {port}' if port else ''}.",
            [Evidence("sockets", one.rank, _where(one)) for one in away],
        )


def _where(one: RankPorts) -> str:
    if one.reached:
        return f"is connected to port {', '.join(sorted(one.reached))}, where none of its peers is"
    if one.listens:
        return f"listens at port {', '.join(sorted(one.listens))}, where nobody comes"
    return "has no connection to anybody, and listens nowhere"


def _proposal(
    facts: CaseFacts, culprits: list[int], summary: str, rows: list[Evidence]
) -> Proposal:
    first = facts.ranks.get(culprits[0])
    here = first if first is not None and first.ended is None else None
    location = here.location() if here is not None else None
    return propose(
        facts,
        Cause.RENDEZVOUS,
        culprits,
        failure_on_record=True,
        status=Status.HUNG,
        confidence=SHOWN,
        summary=summary + (f" It is{name_line(location)}." if location else ""),
        evidence=rows,
        location=location,
    )


def _why_absent(facts: CaseFacts, rank: int) -> str:
    view = facts.ranks.get(rank)
    if view is None:
        return "nothing was ever heard of it"
    return "ended by itself, without an error, before it had joined"


def still_joining(facts: CaseFacts) -> Finding | None:
    """An inconclusive finding where all ranks of a hung job seek its first group; else None."""
    views = sorted(facts.ranks.values(), key=lambda view: view.rank)
    if not facts.stuck or facts.graph.waits or facts.inputs.missing_ranks or not views:
        return None
    if any(v.ended is not None or v.position.place is not StackPlace.RENDEZVOUS for v in views):
        return None
    everybody = "All ranks are" if len(views) > 1 else "The only rank is"
    return Finding(
        status=Status.INCONCLUSIVE,
        victims=[view.rank for view in views],
        summary=f"{everybody} still in init_process_group: the job never formed, and the evidence "
        "does not show why.",
        evidence=[
            Evidence("stack", v.rank, f"is in init_process_group{name_line(v.location())}")
            for v in views[:LISTED_ROWS]
        ],
        advice=Cause.RENDEZVOUS.advice,
    )


def _differing(facts: CaseFacts) -> tuple[list[int], str] | None:
    """The minority that was told another address, port, size or run than the others."""
    for name in _MEETING:
        values = {
            view.rank: view.process.environment[name]
            for view in facts.ranks.values()
            if view.process is not None and name in view.process.environment
        }
        ranked = Counter(values.values()).most_common()
        if len(ranked) < 2 or ranked[0][1] == ranked[1][1]:
            continue
        odd = sorted(rank for rank, value in values.items() if value != ranked[0][0])
        words = f"{name} is {values[odd[0]]!r}, with most others {ranked[0][0]!r}"
        return odd, words
    return None


def _cannot_reach_store(facts: CaseFacts, standings: list[RankPorts]) -> list[RankPorts]:
    """Ranks that still look for the store and of which no socket leads anywhere.

    Where they are not the fewer, those that stand somewhere have to stand where all were told.
    """
    away = [one for one in standings if one.known and one.seeking and not one.ports]
    rest = [one for one in standings if one not in away]
    if not rest or len(away) < len(rest):
        return away if rest else []
    told = {
        view.process.environment.get("MASTER_PORT")
        for view in facts.ranks.values()
        if view.process is not None
    }
    return away if all(told & one.ports for one in rest) else []


def _not_come(facts: CaseFacts) -> Iterator[Proposal]:
    """Ranks without a log, as many as those that the meeting point missed."""
    silent = facts.inputs.missing_ranks
    for failure in failures(facts) if silent and facts.logs_alone else ():
        missed = MISSED_CLIENTS.search(failure.text)
        if missed is not None and int(missed["all"]) - int(missed["came"]) == len(silent):
            words = "left no log" if len(silent) == 1 else "left no logs"
            yield propose(
                facts,
                Cause.RENDEZVOUS,
                silent,
                failure_on_record=True,
                status=Status.FAILED,
                confidence=SEEN,
                summary=f"{name_ranks(silent).capitalize()} {words} and never came to the "
                f"rendezvous of the job: {missed[0]}.",
                evidence=[Evidence(failure.source, failure.view.rank, failure.detail)],
            )
            return


def _failed_joining(facts: CaseFacts) -> Iterator[Proposal]:
    """Errors of joining: the port that was taken, the address that nobody answers at."""
    found = [t for t in failures(facts) if not t.collateral]
    joining = [t for t in found if _is_joining(t)]
    if not joining or len(joining) < len(found):
        return
    for pattern, what in (
        (PORT_TAKEN.pattern, "cannot open the rendezvous of the job, whose port is taken"),
        (UNREACHED.pattern, "cannot reach the rendezvous of the job"),
    ):
        mine = [
            t
            for t in joining
            if pattern.search(text_of(t))
            and not MESH_FAILED.pattern.search(text_of(t))
            and not (pattern is UNREACHED.pattern and "clients joined" in text_of(t))
        ]
        if not mine or len(mine) == len(facts.ranks) > 1:
            continue
        ranks = sorted(t.view.rank for t in mine)
        location = location_of(mine[0])
        yield propose(
            facts,
            Cause.RENDEZVOUS,
            ranks,
            failure_on_record=True,
            status=Status.FAILED,
            confidence=CONFIRMED,
            summary=f"{name_ranks(ranks).capitalize()} {what}{name_line(location)}.",
            evidence=[Evidence(t.source, t.view.rank, t.detail) for t in mine],
            location=location,
        )
        return


def _at_loopback(facts: CaseFacts) -> Iterator[Proposal]:
    """Ranks that looked for a peer at its loopback address, and found only themselves there."""
    failed = [t for t in failures(facts) if not t.collateral]
    sought = {
        t.view.rank: match for t in failed if (match := PEER_AT_LOOPBACK.pattern.search(text_of(t)))
    }
    if not sought or len(sought) < len(failed):
        return
    ports = {port for match in sought.values() for port in _either_order(int(match[1]))}
    hosts = {facts.ranks[rank].host for rank in sought}
    rows: dict[int, Evidence] = {}
    for view in facts.ranks.values():
        mine = _loopback_ends(view) & ports
        if mine and view.host not in hosts:
            words = f"listens for its peers at port {min(mine)} of its loopback interface only"
            rows[view.rank] = Evidence("sockets", view.rank, words)
    if len(rows) != 1:
        return
    ((culprit, row),) = rows.items()
    location = facts.ranks[culprit].location()
    yield propose(
        facts,
        Cause.RENDEZVOUS,
        [culprit],
        failure_on_record=True,
        status=Status.FAILED,
        confidence=SHOWN,
        summary=f"Rank {culprit} tells its peers to reach it at a loopback address, where "
        f"{name_ranks(sorted(sought))} found nobody.",
        evidence=[row, *(Evidence(t.source, t.view.rank, t.detail) for t in failed)],
        location=location,
    )


def _either_order(port: int) -> tuple[str, str]:
    """A port as gloo prints it, which is in the network's order of bytes, and as it may mean it."""
    return str(port), str((port & 0xFF) << 8 | port >> 8)


def _loopback_ends(view: RankView) -> set[str]:
    """Ports at which the rank listens for its peers on a loopback address only."""
    return {
        connection.local.rpartition(":")[2]
        for sample in view.connections
        for connection in sample.connections
        if connection.state == "LISTEN" and connection.local.startswith(("127.", "[::1]"))
    }


def _is_joining(failure: Failure) -> bool:
    raised = failure.view.exceptions
    frames = raised[0].frames if raised else []
    inside = any(frame.function in _INIT | SEEKING for frame in frames)
    text = text_of(failure)
    said = any(row.pattern.search(text) for row in (PORT_TAKEN, UNREACHED, JOIN_TIMED_OUT))
    return said and (inside or not raised)
