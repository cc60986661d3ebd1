"""Ranks at which all waiting ends: they have not entered what their peers wait in."""

from __future__ import annotations

from hanglab.analyzer.causes.thresholds import LISTED_ROWS, UNSETTLED
from hanglab.analyzer.facts.call_wording import SOURCE, name_call
from hanglab.analyzer.facts.case_facts import collective_ref
from hanglab.analyzer.facts.waiting_ranks import all_victims, may_explain_hang
from hanglab.analyzer.flight_recorder.columns import ABSENT
from hanglab.analyzer.graph.connected import connected
from hanglab.analyzer.graph.thresholds import FULL_RANKS
from hanglab.analyzer.graph.wait_for_graph import Sink, WaitForGraph
from hanglab.analyzer.matching.calls import Call
from hanglab.analyzer.strengths import CANDIDATES, CONCLUDED, LIKELY_ALTERNATIVE, SEEN, TIED
from hanglab.analyzer.verdict import Alternative, Cause, Evidence, Finding, Status
from hanglab.analyzer.wording import NEVER_ENTERED, break_off, name_ranks
from hanglab.recorder.case.operations import op_of


def missing_findings(graph: WaitForGraph) -> list[Finding]:
    """One finding for all of them; none where evidence that is missing could change it."""
    sinks = unexplained_sinks(graph)
    if not sinks or any(sink.hidden for sink in sinks) or set(graph.open) & set(graph.ranks):
        # A dump that does not tell whether its rank came may be older than those of its peers.
        return []
    culprits = [sink.rank for sink in sinks]
    inside = [
        (sink, call)
        for sink in sinks
        if sink.stopped_device
        for call in graph.unfinished.get(sink.rank, [])[:1]
    ]
    exchanging = [(sink, call) for sink, call in inside if op_of(call.op).splits]
    if exchanging and (len(inside) > 1 or any(_may_lack_part(graph, *one) for one in exchanging)):
        return []  # Their parts are for each other, so neither device need have stopped.
    idle = [sink for sink in sinks if sink.outside and not graph.unfinished.get(sink.rank)]
    if len(idle) > 1 and not any(sink.last for sink in idle) and _is_of_one_call(graph):
        return []  # Several hardly stop at once: they wait for each other in what leaves no entry.
    if idle and _another_may_be_missing(graph, culprits):
        return []  # Who has nothing open may wait for that one in what leaves no entry.
    victims = set(_victims(graph, culprits))
    waiting = {wait.call.rank for wait in graph.waits if not set(culprits).isdisjoint(wait.on)}
    disputed = any(waiting.intersection(sink.disputed_by) for sink in sinks)
    untold = any(sink.untold for sink in sinks)
    alone = len(waiting) < 2 and (disputed or untold or _idle_peers(graph, sinks, victims))
    outvoted = len(waiting) <= len(sinks) and all(
        waiting.issubset(sink.disputed_by) for sink in sinks
    )
    if len(waiting) > 1 and outvoted:
        return []  # Those who wait may have done too much, all of them.
    if len(sinks) == 1 and _is_last(sinks[0]):
        return [_finding(graph, sinks)]
    if alone or len(culprits) > len(victims):
        # One waits, for those who stand where others do, or of whose order its own differs, or
        # without an order of its own: it may have done too much.
        return _either(graph, sinks, waiting) if alone else []
    return [_finding(graph, sinks, halves=len(culprits) == len(victims) > 1)]


def _is_of_one_call(graph: WaitForGraph) -> bool:
    return len({(wait.call.group, wait.call.seq) for wait in graph.waits}) == 1


def _another_may_be_missing(graph: WaitForGraph, culprits: list[int]) -> bool:
    """True if others wait for ranks without a dump alone, who may not wait for the culprits.

    In a collective of who waits for them they would have come to that first.
    """
    held = {*culprits, *all_victims(graph, culprits)}
    lost = set(graph.missing)
    meeting = [
        members
        for group in graph.groups
        if not lost.isdisjoint(members := set(group.members)) and not held.isdisjoint(members)
    ]
    return any(
        wait.on
        and lost.issuperset(wait.on)
        and not any(
            not members.isdisjoint(wait.on)
            and (wait.call.seq is None or wait.call.rank not in members)
            for members in meeting
        )
        for wait in graph.waits
    )


def _may_lack_part(graph: WaitForGraph, sink: Sink, call: Call) -> bool:
    """True if a member may have sent less in the exchange that others have ended, or be in it.

    One that left no dump, or whose buffer has dropped what it sent: it ends when it is sent itself.
    """
    if sink.by_exclusion or call.seq is None:
        return False
    lookup, group, seq = graph.lookup, call.group, call.seq
    if lookup is None or not set(graph.missing).isdisjoint(group.members):
        return True
    return len(group.members) > FULL_RANKS or any(
        lookup.index_of(rank, group.name, seq) == ABSENT for rank in group.members
    )


def _is_last(sink: Sink) -> bool:
    """True if it alone is in what all its peers have ended, and nobody waits for it."""
    return sink.stopped_device and not sink.victims


def _either(graph: WaitForGraph, sinks: list[Sink], waiting: set[int]) -> list[Finding]:
    """A pair, one that waits and one that has not come, without a third to tell."""
    sink, *others = sinks
    call = sink.awaited
    pair = sink.untold or (call.seq is not None and len(call.group.members) == 2)
    cut = sink.rank in graph.broken_off  # What it did before would tell.
    if others or cut or not (pair and sink.outside and len(waiting) == 1):
        return []
    culprits = sorted({sink.rank, *waiting})
    (waiter,) = waiting
    finding = _finding(graph, [sink])
    finding.culprits, finding.victims = culprits, _victims(graph, culprits)
    finding.confidence = TIED
    waits_in = f"waits in {name_call(call)}, which rank {sink.rank}"
    if call.seq is None:
        waits_in = f"waits for {name_call(call)} at rank {sink.rank}, which"
    finding.summary = (
        f"Rank {waiter} {waits_in} has not entered, and "
        f"nobody else is left to tell: rank {sink.rank} left it out or stopped before it, or rank "
        f"{waiter} has one operation too many."
    )
    return [finding]


def _idle_peers(graph: WaitForGraph, sinks: list[Sink], victims: set[int]) -> set[int]:
    """Ranks of the culprits' groups that have nothing unfinished either, and wait for nobody.

    Had a culprit stopped by itself, they would have come to wait for it, or be further on.
    """
    culprits = {sink.rank for sink in sinks}
    further = {rank for sink in sinks for rank in sink.passed_by}
    if not any(sink.outside or sink.unknown for sink in sinks):
        return set()  # They have come, and their devices have stopped.
    shared = {
        rank
        for group in graph.groups
        if not culprits.isdisjoint(group.members)
        for rank in group.members
    }
    return shared.intersection(graph.idle) - victims - culprits - further - graph.silent_p2p


def unexplained_sinks(graph: WaitForGraph) -> list[Sink]:
    """Known sinks that no divergence explains.

    Who has nothing open may wait in what leaves no entry, and beside one that is proved to deviate,
    and that is of one job with it, it hardly stopped by itself.
    """
    explained = {
        divergence.group: divergence.seq
        for divergence in graph.divergences
        if may_explain_hang(graph, divergence)
    }
    deviating = {
        rank for d in graph.divergences if may_explain_hang(graph, d) for rank in d.deviating
    }
    beside = {
        rank
        for part in connected(graph.groups, lambda group: group.members)
        if any(not deviating.isdisjoint(group.members) for group in part)
        for group in part
        for rank in group.members
    }
    found = []
    for sink in graph.sinks:
        call = sink.awaited
        later = call.seq is not None and call.seq >= explained.get(call.group, call.seq + 1)
        if sink.rank in graph.host_waits:
            continue
        if sink.rank in beside and sink.outside and not graph.unfinished.get(sink.rank):
            continue
        if not sink.unknown and not later and sink.rank not in deviating:
            found.append(sink)
    return found


def ranks_that_may_move(graph: WaitForGraph) -> tuple[str, list[Alternative]] | None:
    """Words for why it is open whether a job hangs in which ranks may have been on their way, and
    who is missing if it does; None where none were."""
    ranks = graph.progressing
    if not ranks:
        return None
    awaited = {rank for wait in graph.waits for rank in wait.on}
    missing = sorted(awaited.intersection(ranks))
    whose = "its dump was" if len(ranks) == 1 else "their dumps were"
    words = (
        f"{name_ranks(ranks).capitalize()} may still have moved when {whose} taken, so whether the "
        "job hangs cannot be told"
    )
    if not missing:
        return f"{words}.", []
    words += f"; if nothing moves any more, the others wait for {name_ranks(missing)}."
    return words, [Alternative(Cause.MISSING_RANK, missing, UNSETTLED)]


def ranks_without_dump(graph: WaitForGraph) -> list[Alternative]:
    """Ranks that left no dump, and for which alone others wait: who died leaves none."""
    unseen = {sink.rank for sink in graph.sinks if sink.unknown} | set(graph.open)
    unseen = unseen or {rank for wait in graph.waits for rank in wait.on} - set(graph.ranks)
    lost = sorted(unseen.intersection(graph.missing))
    if not lost or len(lost) < len(unseen):
        return []
    return [Alternative(Cause.MISSING_RANK, lost, LIKELY_ALTERNATIVE)]


def _victims(graph: WaitForGraph, culprits: list[int]) -> list[int]:
    return all_victims(graph, culprits)


def _finding(graph: WaitForGraph, sinks: list[Sink], *, halves: bool = False) -> Finding:
    """``halves``: as many wait for them as they are, who may have an operation too many instead."""
    cause = Cause.MISSING_RANK
    culprits = [sink.rank for sink in sinks]
    first = sinks[0]
    stopped = [sink.rank for sink in sinks if sink.stopped_device and not sink.by_exclusion]
    unstarted = [sink for sink in sinks if sink.unstarted]
    concluded = [sink.rank for sink in sinks if sink.by_exclusion and not sink.unstarted]
    outside = [sink.rank for sink in sinks if sink.outside and not graph.unfinished.get(sink.rank)]
    going = [sink for sink in sinks if sink.outside and graph.unfinished.get(sink.rank)]
    words = [
        f"Rank {sink.rank} never entered {name_call(sink.awaited)}, which others wait in; what it "
        "has underway never kept it, or does not keep its peers, from that."
        for sink in going
    ]
    if outside:
        words.append(
            f"{name_ranks(outside).capitalize()} "
            f"{'has' if len(outside) == 1 else 'have'} nothing unfinished and never entered "
            f"{_awaited(sinks, outside)}."
        )
    last = len(sinks) == 1 and _is_last(first)
    if last:
        root = "it takes another rank for the root, or " if op_of(first.awaited.op).rooted else ""
        words.append(
            f"Rank {first.rank} alone has not finished {name_call(first.awaited)}, and all its "
            f"peers have: its device or process stopped, or {root}what it waits for does not come "
            "through. Nobody waits for it."
        )
    elif stopped:
        words.append(
            f"{name_ranks(stopped).capitalize()} did not finish operations that all peers "
            "finished: the device or the process stopped, and the others wait for it."
        )
    unseen = [sink.rank for sink in sinks if sink.unseen]
    if unseen:
        words.append(
            f"Or {name_ranks(unseen)} called another operation there, or with other arguments: no "
            "dump holds what the peers called."
        )
    words += [
        f"Rank {sink.rank} has issued {name_call(sink.awaited)}, but its device has not begun it, "
        "although nothing older of the rank is open: it has stopped, and all others wait for it."
        for sink in unstarted
    ]
    if concluded:
        words.append(
            "Everybody has issued what the others wait in. Of all that is open nothing would be, "
            f"had not the device of {name_ranks(concluded)} stopped, and no other device explains "
            "all of it."
        )
    stalled = next((sink.stalled for sink in sinks if sink.stalled), ())
    if stalled:
        words.append(f"Or what passes between {name_ranks(stalled)} does not come through.")
    cut = sorted(graph.broken_off.intersection(outside))
    if cut:
        words.append(
            f"{break_off(cut).capitalize()}; that nothing is unfinished is told by the counters of "
            "groups, which stand before that."
        )
    halves = halves and len(outside) == len(sinks)
    if halves:
        words.append("As many wait for them: these may have one operation too many instead.")
    if graph.open:
        words.append(f"Whether {name_ranks(sorted(graph.open))} came, too, is not known.")
    paused = [sink for sink in sinks if sink.paused_s is not None]
    by_rounds = [sink.rank for sink in sinks if sink.by_rounds]
    if by_rounds:
        words.append(
            f"That {name_ranks(by_rounds)} had yet to come there is told by own rounds alone, as "
            "buffers have lost the messages before."
        )
    silent = graph.silent_p2p.intersection(outside)
    if silent:
        words.append(
            f"Sends and receives, which leave no entry on gloo, are what {name_ranks([*silent])} "
            "might be in instead."
        )
    return Finding(
        status=Status.HUNG,
        category=cause.category,
        cause=cause,
        culprits=culprits,
        victims=_victims(graph, culprits),
        collective=collective_ref(first.awaited),
        location=None,
        confidence=CANDIDATES
        if silent or unseen or last or paused or halves or stalled
        else CONCLUDED
        if concluded or by_rounds
        else SEEN,
        summary=" ".join(words),
        evidence=[_evidence(sink) for sink in sinks[:LISTED_ROWS]]
        + [_pause(sink.rank, sink.paused_s) for sink in paused[:LISTED_ROWS] if sink.paused_s],
        advice=cause.advice,
    )


def _awaited(sinks: list[Sink], outside: list[int]) -> str:
    """Operation that ranks outside have yet to enter; whose is whose, where there are several."""
    by_name: dict[str, list[int]] = {}
    for sink in sinks:
        if sink.rank in outside:
            by_name.setdefault(name_call(sink.awaited), []).append(sink.rank)
    if len(by_name) == 1:
        return f"{next(iter(by_name))}, which the others wait in"
    shown = [f"{name_ranks(ranks)} {name}" for name, ranks in list(by_name.items())[:3]]
    more = f" and {len(by_name) - 3} more" if len(by_name) > 3 else ""
    return f"what the others wait in: {', '.join(shown)}{more}"


def _pause(rank: int, seconds: float) -> Evidence:
    return Evidence(
        SOURCE,
        rank,
        f"had done nothing for {seconds:.1f} s when that was dumped: what leaves no entry, such as "
        "a first checkpoint, may take as long, and a later dump would tell",
    )


def _evidence(sink: Sink) -> Evidence:
    last = f"; its last call was {name_call(sink.last)}" if sink.last is not None else ""
    if sink.unstarted:
        detail = f"{name_call(sink.awaited)} is scheduled and not started{last}"
    elif sink.by_exclusion:
        detail = f"alone takes part in all that is held up by nothing else{last}"
    elif sink.stopped_device:
        detail = f"unfinished although peers finished it{last}"
    else:
        detail = f"{NEVER_ENTERED} {name_call(sink.awaited)}{last}"
    return Evidence(SOURCE, sink.rank, detail)
