"""The graph of who waits for whom, made small: ranks that wait alike are one node."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Mapping

from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.verdict import Status, Verdict
from hanglab.harness.report.page.rank_classes import doing_of
from hanglab.harness.report.page.records import WaitData, WaitEdge, WaitNode
from hanglab.harness.report.rank_ranges import named, ranges
from hanglab.harness.report.rank_waits import rank_waits

#: Nodes that are drawn; beyond, the list has them.
MOST_NODES = 40
#: Of a rank, its waits: for whom, in what, and whether the wait itself was seen.
_Waits = dict[int, dict[int, tuple[str, bool]]]


def wait_data(facts: CaseFacts, verdict: Verdict) -> WaitData:
    """The graph of waits, folded and laid out; without nodes where nobody is seen to wait."""
    waits = _waits(facts, verdict)
    involved = {*waits, *(awaited for on in waits.values() for awaited in on)}
    if not involved:
        return WaitData(notes=["Nobody is seen to wait for another rank."])
    knot = {rank for cycle in facts.graph.cycles for rank in cycle.ranks} & involved
    roots = ({*verdict.culprits, *(sink.rank for sink in facts.graph.sinks)} & involved) - knot
    place = _fold(waits, involved, knot, roots, facts)
    members: dict[int, list[int]] = defaultdict(list)
    for rank, node in place.items():
        members[node].append(rank)
    data = WaitData()
    for node in sorted(members):
        ranks = members[node]
        first = ranks[0]
        kind = "knot" if first in knot else "root" if first in roots else "waits"
        data.nodes.append(
            WaitNode(
                ranks=ranges(ranks),
                count=len(ranks),
                kind=kind,  # type: ignore[arg-type]
                text=doing_of(facts, ranks),
            )
        )
    seen: dict[tuple[int, int], WaitEdge] = {}
    for rank, on in sorted(waits.items()):
        for awaited, (text, concluded) in on.items():
            key = place[rank], place[awaited]
            if key not in seen:
                seen[key] = WaitEdge(waiter=key[0], awaited=key[1], text=text, concluded=concluded)
    data.edges = list(seen.values())
    if knot:
        data.notes.append(f"{named(knot).capitalize()} wait for each other: none can go on.")
    if len(data.nodes) > MOST_NODES:
        data.notes.append(f"{len(data.nodes)} sorts of ranks: they are listed, not drawn.")
    _lay_out(data)
    return data


def _waits(facts: CaseFacts, verdict: Verdict) -> _Waits:
    found: _Waits = defaultdict(dict)
    for rank, on in rank_waits(facts.graph).items():
        found[rank] = {awaited: (text, False) for awaited, text in on.items()}
    if verdict.status in (Status.HUNG, Status.FAILED):
        _conclude(found, verdict)
    return dict(found)


def _conclude(found: _Waits, verdict: Verdict) -> None:
    """Victims that no wait leads from, by what the verdict says."""
    call = verdict.collective
    number = f" #{call.seq}" if call is not None and call.seq is not None else ""
    text = f"{call.op}{number} of {call.group or call.group_id}" if call else "by the verdict"
    for victim in verdict.victims:
        if not found.get(victim):
            for culprit in verdict.culprits:
                if culprit != victim:
                    found[victim].setdefault(culprit, (text, True))


def _fold(
    waits: Mapping[int, Mapping[int, tuple[str, bool]]],
    involved: set[int],
    knot: set[int],
    roots: set[int],
    facts: CaseFacts,
) -> dict[int, int]:
    """Rank -> node: one for ranks that wait for the same ones, in operations of one kind."""
    keys: dict[int, Hashable] = {}
    for rank in involved:
        if rank in knot:
            keys[rank] = ("knot", rank)
        elif rank in roots:
            keys[rank] = ("root", rank)
        else:
            on = waits.get(rank, {})
            calls = facts.graph.unfinished.get(rank, ())
            keys[rank] = (frozenset(on), tuple(sorted({call.op for call in calls})))
    numbers: dict[Hashable, int] = {}
    return {rank: numbers.setdefault(keys[rank], len(numbers)) for rank in sorted(involved)}


def _lay_out(data: WaitData) -> None:
    """Roots to the right and whoever waits for them left of them; a knot as a ring."""
    ring = [node for node in data.nodes if node.kind == "knot"]
    for number, node in enumerate(ring):
        angle = 2 * math.pi * number / len(ring) + math.pi / 2
        node.x, node.y = round(math.cos(angle), 3), round(math.sin(angle), 3)
    depth = _depths(data)
    columns: dict[int, list[int]] = defaultdict(list)
    for number, node in enumerate(data.nodes):
        if node.kind != "knot":
            columns[depth[number]].append(number)
    shift = 2.2 if ring else 0.0
    for column, numbers in columns.items():
        for place, number in enumerate(numbers):
            data.nodes[number].x = -float(column) * 1.6 - shift
            data.nodes[number].y = round((len(numbers) - 1) / 2 - place, 3)


def _depths(data: WaitData) -> list[int]:
    """Steps from each node to what it waits for in the end; ends and knots have 0."""
    awaited: dict[int, set[int]] = defaultdict(set)
    for edge in data.edges:
        awaited[edge.awaited].add(edge.waiter)
    waits = {edge.waiter for edge in data.edges}
    longest = _longest_ways(data)
    if longest is not None:
        return longest
    level = {n for n, node in enumerate(data.nodes) if node.kind != "waits" or n not in waits}
    depth = dict.fromkeys(level, 0)
    steps = 0
    while level:
        steps += 1
        level = {waiter for number in level for waiter in awaited[number]} - depth.keys()
        depth.update(dict.fromkeys(level, steps))
    return [depth.get(number, 1) for number in range(len(data.nodes))]


def _longest_ways(data: WaitData) -> list[int] | None:
    """Steps on the longest way from each node to one that waits for nobody; None in rings."""
    depth = [0] * len(data.nodes)
    for _ in data.nodes:
        changed = False
        for edge in data.edges:
            if edge.waiter != edge.awaited and depth[edge.waiter] <= depth[edge.awaited]:
                depth[edge.waiter] = depth[edge.awaited] + 1
                changed = True
        if not changed:
            return depth
    return None
