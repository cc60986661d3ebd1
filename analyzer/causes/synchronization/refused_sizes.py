"""A rank that gloo aborted because it received more than it had room for.

The process is gone and its buffer with it, and what DistributedDataParallel
issues never passes the Python boundary.  But gloo says on stderr how many bytes
came and how many were expected (transport/tcp/pair.cc), and the survivors'
buffers say what they were sending.  Where what came is a piece of the operation
in which all survivors agree, it is the aborted rank whose tensor has another
size.  Where no buffer was had, the survivors' tracebacks still tell the line at
which they lost it, and the Python boundary that at which it was.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from hanglab.analyzer.causes.thresholds import LISTED_ROWS
from hanglab.analyzer.facts.call_wording import location, name_call, observation
from hanglab.analyzer.facts.case_facts import CaseFacts, RankView, collective_ref
from hanglab.analyzer.facts.error_texts import LOST_PEER, REFUSED_SIZE
from hanglab.analyzer.facts.further_rounds import further_rounds, more_rounds
from hanglab.analyzer.facts.gloo_pieces import bytes_of, is_piece, operation_of_piece
from hanglab.analyzer.matching.calls import Call
from hanglab.analyzer.proposal import Proposal, detector, propose
from hanglab.analyzer.strengths import (
    ALTERNATIVE,
    CANDIDATES,
    LIKELY_ALTERNATIVE,
    PLAUSIBLE,
    TIED,
)
from hanglab.analyzer.verdict import Cause, Evidence, Location
from hanglab.analyzer.wording import name_ranks
from hanglab.recorder.case.operations import EqualSizes, op_of

#: Members of a group that have to be in the same operation before another is in a wrong one.
_FEWEST_AGREEING = 2


@detector
def refused_sizes(facts: CaseFacts) -> Iterator[Proposal]:
    """``size_mismatch`` of an aborted rank, by what it refused and what its peers sent.

    Or ``collective_mismatch``, where all that is known of the peers is that they were elsewhere.
    """
    if facts.graph.divergences:
        return
    for rank, view in facts.ranks.items():
        refused = _refusal(view)
        if refused is None:
            continue
        received, expected = refused
        own = facts.graph.last_calls.get(rank)
        # With its own sizes at hand a size is not what is wrong; its line may be.
        sized = own is not None and own.arguments.input_sizes
        calls = [] if sized else _agreed(facts, rank)
        told = None
        if own is not None and own.seq is None:
            told = _in_a_message(facts, own, received, expected)
        elif own is not None and not calls:
            told = _by_votes(facts, own)
        if told is not None:
            yield told
            return
        if not calls:
            elsewhere = (
                _only_sender(facts, view, received, expected)
                or _elsewhere(facts, view, received, expected)
                or _ahead(facts, view, received, expected)
            )
            if elsewhere is not None:
                yield elsewhere
                return
        if not calls or not is_piece(calls[0], received):
            continue
        yield _smaller(facts, rank, received, expected, calls)
        return


def _in_a_message(facts: CaseFacts, own: Call, received: int, expected: int) -> Proposal | None:
    """The two ends of a message of which more came than its receiver had room for.

    Which of them changed it, the receiver's earlier ones from there tell.
    """
    if op_of(own.op).half != "recv" or own.peer is None or bytes_of(own) != expected:
        return None
    *earlier, _ = _messages(facts, own) or [own]
    changed = None
    if len(earlier) >= _FEWEST_AGREEING:
        if all(bytes_of(one) == received for one in earlier):
            changed = own
        elif all(bytes_of(one) == expected for one in earlier):
            half = replace(own, rank=own.peer, peer=own.rank, op=op_of(own.op).other_half)
            changed = next(reversed(_messages(facts, half)), half)
    room = "" if changed is None else f"; all its {len(earlier)} receives from there before had "
    room += "" if changed is None else f"room for {expected if changed is not own else received}"
    culprits = sorted([own.rank, own.peer]) if changed is None else [changed.rank]
    return propose(
        facts,
        Cause.SIZE_MISMATCH,
        culprits,
        confidence=TIED if changed is None else PLAUSIBLE,
        summary=f"Rank {own.rank}'s {name_call(own)} had room for {expected} bytes, and {received} "
        f"came{room}. Gloo aborted it.",
        evidence=[_refused(own.rank, received, expected), observation(own)],
        collective=collective_ref(changed or own),
        location=location(changed or own),
    )


def _messages(facts: CaseFacts, like: Call) -> list[Call]:
    """A rank's messages the same way, with the same peer in the same group, oldest first."""
    dump = facts.dumps.get(like.rank)
    if dump is None or dump.entries is None or like.peer not in like.group.members:
        return []
    entries, place = dump.entries, like.group.members.index(like.peer)
    return [
        replace(like, arguments=entries.arguments_at(row), stack=entries.stack_at(row))
        for row in np.flatnonzero(entries.in_group(like.group.name)).tolist()
        if (entries.operation_at(row).op, entries.operation_at(row).peer) == (like.op, place)
    ]


def _by_votes(facts: CaseFacts, own: Call) -> Proposal | None:
    """Members whose tensor has another size, where aborted ones tell theirs by what they refused.

    These had room for a piece of what they called themselves.  Gloo's buffer calls finished what
    failed, so that sizes that differ hold nobody up there.
    """
    sides: dict[object, list[Call]] = {}
    unsized = []
    for rank in own.group.members:
        call = facts.graph.last_calls.get(rank)
        if call is None or (call.group, call.seq, call.op) != (own.group, own.seq, own.op):
            return None
        if call.arguments.input_sizes:
            sides.setdefault(call.arguments.input_sizes, []).append(call)
        else:
            unsized.append(rank)
    if not unsized or len(sides) < 2 or op_of(own.op).equal_sizes is EqualSizes.NONE:
        return None
    votes = {side: [call.rank for call in calls] for side, calls in sides.items()}
    evidence = []
    for rank in unsized:
        refused = _refusal(facts.ranks[rank]) if rank in facts.ranks else None
        had = [side for side, calls in sides.items() if refused and is_piece(calls[0], refused[1])]
        if refused is None or len(had) != 1:
            return None
        votes[had[0]].append(rank)
        evidence.append(_refused(rank, *refused))
    most, *fewer = sorted(votes.values(), key=len, reverse=True)
    odd = sorted(rank for side in fewer for rank in side)
    told = len(most) > len(odd)
    culprits = odd if told else sorted([*most, *odd])
    calls = [call for side in sides.values() for call in side]
    first = next(call for call in calls if call.rank in culprits)
    sizes = "; ".join(
        f"{name_ranks(sorted(ranks))} {list(sides[side][0].arguments.input_sizes[0])}"
        for side, ranks in votes.items()
    )
    return propose(
        facts,
        Cause.SIZE_MISMATCH,
        culprits,
        confidence=PLAUSIBLE if told else TIED,
        summary=f"{name_call(own)[:1].upper()}{name_call(own)[1:]} has tensors of other sizes: "
        f"{sizes}. Gloo aborted {name_ranks(unsized)}, by what it had room for.",
        evidence=[*evidence, *(observation(call) for call in calls[:LISTED_ROWS])],
        collective=collective_ref(first),
        location=location(first),
    )


def _smaller(
    facts: CaseFacts, rank: int, received: int, expected: int, calls: list[Call]
) -> Proposal:
    """The aborted rank came with less than its peers, which all are in one operation.

    Where so much is what the job passes to another operation, it was in that.
    """
    call = calls[0]
    other = operation_of_piece(facts, call, expected)
    cause, less = Cause.SIZE_MISMATCH, Cause.COLLECTIVE_MISMATCH
    why = "its tensor is smaller than theirs"
    if other is not None:
        cause, less = less, cause
        why = f"it was in another operation, by that size the {_sized(other)} of the job"
    return propose(
        facts,
        cause,
        [rank],
        confidence=PLAUSIBLE,
        summary=f"Rank {rank} expected {expected} bytes where its peers send {received} in "
        f"{call.op} number {call.seq}: {why}, and gloo aborted it.",
        evidence=[
            _refused(rank, received, expected),
            *(
                Evidence("flight_recorder", peer.rank, f"was in {peer.op} number {peer.seq}")
                for peer in calls[:LISTED_ROWS]
            ),
            *_before(other),
        ],
        collective=collective_ref(call),
        location=_line(facts.graph.last_calls.get(rank)),
        # What it was in instead is not known: its buffer has gone.
        alternatives=[(less, [rank], ALTERNATIVE)],
    )


def _sized(call: Call) -> str:
    return f"{call.op} of {[list(size) for size in call.arguments.input_sizes]}"


def _before(call: Call | None) -> list[Evidence]:
    """That so many bytes are a piece of an operation which the job did before, if there is one."""
    if call is None:
        return []
    words = f"so many bytes are a piece of {_sized(call)}, which the job did before"
    return [Evidence("flight_recorder", call.rank, f"{words} (number {call.seq})")]


def _only_sender(facts: CaseFacts, view: RankView, received: int, expected: int) -> Proposal | None:
    """The one member of whose operation nothing is known, where all others are in the same one.

    What came is no piece of that, so it came from another operation: of that member alone.
    What there was room for has to be one: else the aborted rank itself was in an operation of
    which nothing is known, and those that were with it before may be in that, too.
    """
    own = facts.graph.last_calls.get(view.rank)
    if own is None or own.seq is None or not own.arguments.input_sizes:
        return None
    if is_piece(own, received) or not is_piece(own, expected):
        return None
    # What DistributedDataParallel issues after the last known call leaves nothing behind.
    known = {rank: facts.graph.last_calls.get(rank) for rank in own.group.members}
    calls = [call for call in known.values() if call is not None and (call.seq or 0) >= own.seq]
    unknown = sorted(set(known) - {call.rank for call in calls})
    if len(unknown) != 1 or len(calls) < _FEWEST_AGREEING or unknown[0] not in facts.ranks:
        return None
    same = (own.group, own.seq, own.op, own.arguments.input_sizes)
    if any((c.group, c.seq, c.op, c.arguments.input_sizes) != same for c in calls):
        return None
    (sender,) = unknown
    before = operation_of_piece(facts, own, received)
    peers = sorted(call.rank for call in calls)
    more = further_rounds(facts, unknown, peers)
    told = (
        f"Rank {sender} was in another operation where its peers were in {own.op} number "
        f"{own.seq}: {received} bytes came, and none of its peers sends so many there."
    )
    return propose(
        facts,
        Cause.COLLECTIVE_MISMATCH if more is None else Cause.UNEVEN_INPUTS,
        [sender],
        confidence=PLAUSIBLE,
        summary=told if more is None else f"{more_rounds(unknown, peers, more)} {told}",
        evidence=[
            _refused(view.rank, received, expected),
            *(Evidence("flight_recorder", c.rank, f"was in {c.op} number {c.seq}") for c in calls),
            *_before(before),
        ],
        collective=collective_ref(own),
        # Its peers may have left the loop that it is in, for want of input.
        alternatives=[
            (Cause.SIZE_MISMATCH, [sender], ALTERNATIVE),
            (Cause.UNEVEN_INPUTS, peers, ALTERNATIVE)
            if more is None
            else (Cause.COLLECTIVE_MISMATCH, unknown, ALTERNATIVE),
        ],
    )


def _elsewhere(facts: CaseFacts, view: RankView, received: int, expected: int) -> Proposal | None:
    """The aborted rank was in an operation of its own, and all survivors together in another."""
    own = facts.graph.last_calls.get(view.rank)
    line = _line(own)
    if own is None or line is None or not view.inside_operation:
        return None
    frames = {
        peer: facts.ranks[peer].user_frames[0]
        for peer in facts.others(view.rank)
        if _lost_a_peer(facts.ranks[peer]) and facts.ranks[peer].user_frames
    }
    places = {(frame.file, frame.line) for frame in frames.values()}
    members = len(own.group.members) or len(facts.ranks)
    if len(places) != 1 or (line.file, line.line) in places or len(frames) * 2 <= members:
        return None
    return propose(
        facts,
        Cause.COLLECTIVE_MISMATCH,
        [view.rank],
        confidence=CANDIDATES,
        summary=f"Rank {view.rank} was in {own.op} while its peers were in an operation of another "
        f"line: it expected {expected} bytes and received {received}, and gloo aborted it.",
        evidence=[
            _refused(view.rank, received, expected),
            Evidence("progress", view.rank, f"was in {own.op} at {line.file}:{line.line}"),
            *(
                Evidence("exceptions", peer, f"lost a peer at {frame.file}:{frame.line}")
                for peer, frame in list(frames.items())[:LISTED_ROWS]
            ),
        ],
        collective=collective_ref(own),
        location=line,
        # One operation may have two lines, by a branch on the rank.
        alternatives=[(Cause.SIZE_MISMATCH, [view.rank], LIKELY_ALTERNATIVE)],
    )


def _refused(rank: int, received: int, expected: int) -> Evidence:
    return Evidence("stderr", rank, f"gloo received {received} bytes and had room for {expected}")


def _ahead(facts: CaseFacts, view: RankView, received: int, expected: int) -> Proposal | None:
    """The aborted rank alone had come to a call at the Python boundary that its peers lack.

    Their dumps died with them, but their boundaries tell that nobody was in it: what came is of
    what DistributedDataParallel issues beneath.
    """
    own = facts.graph.last_calls.get(view.rank)
    line = _line(own)
    if own is None or own.seq is None or line is None or not view.inside_operation:
        return None
    peers = [rank for rank in own.group.members if rank != view.rank]
    recorded = [rank for rank in peers if rank in facts.ranks and facts.ranks[rank].progress]
    last = [call for peer in peers if (call := facts.graph.last_calls.get(peer)) is not None]
    if len(peers) < _FEWEST_AGREEING or len(recorded) < len(peers):
        return None
    if any(call.group != own.group or (call.seq or 0) >= own.seq for call in last):
        return None
    if not is_piece(own, expected) or is_piece(own, received):
        return None
    return propose(
        facts,
        Cause.COLLECTIVE_MISMATCH,
        [view.rank],
        confidence=CANDIDATES,
        summary=f"Rank {view.rank} was in {own.op} number {own.seq}, which none of its peers had "
        f"called by then: it expected {expected} bytes and received {received}, of what they were "
        "in, and gloo aborted it.",
        evidence=[
            _refused(view.rank, received, expected),
            Evidence("progress", view.rank, f"was in {own.op} at {line.file}:{line.line}"),
            *(Evidence("progress", peer, "had not called it") for peer in peers[:LISTED_ROWS]),
        ],
        collective=collective_ref(own),
        location=line,
        alternatives=[(Cause.SKIPPED_COLLECTIVE, [view.rank], LIKELY_ALTERNATIVE)],
    )


def _lost_a_peer(view: RankView) -> bool:
    return any(
        raised.main and LOST_PEER.pattern.search(raised.message) for raised in view.exceptions
    )


def _line(call: Call | None) -> Location | None:
    """Line at which the rank made the call, if the Python boundary noted it, and it is in it."""
    if call is None or not call.stack or call.completed:
        return None
    frame = call.stack[0]
    return Location(frame.file, frame.line, frame.function, call.rank)


def _refusal(view: RankView) -> tuple[int, int] | None:
    """(bytes received, bytes expected) of a rank that gloo aborted."""
    end = view.ended
    if end is None or end.signal != signal.SIGABRT:
        return None
    found = set(REFUSED_SIZE.pattern.findall(view.stderr))
    if len(found) != 1:
        return None  # of several that died together: nobody knows which words are its own
    ((received, expected),) = found
    return int(received), int(expected)


def _agreed(facts: CaseFacts, rank: int) -> list[Call]:
    """The last calls of the group's other ranks whose sizes are known; [] unless all are the same.

    Of a rank that is asked to end before it could leave its buffer no size is known.  One size
    alone must be the one that its rank had before: it may have changed its own.
    """
    own = facts.graph.last_calls.get(rank)
    members = own.group.members if own is not None and own.seq is not None else ()
    others = [peer for peer in members or facts.others(rank) if peer != rank]
    calls = [facts.graph.last_calls.get(peer) for peer in others]
    sized = [call for call in calls if call is not None and call.arguments.input_sizes]
    first = sized[0] if sized else None
    if first is None or first.seq is None or rank not in first.group.members or None in calls:
        return []
    past = own is not None and own.completed and (own.seq or 0) < first.seq
    for call in [call for call in (*calls, None if past else own) if call is not None]:
        if (call.group, call.seq, call.op) != (first.group, first.seq, first.op):
            return []
    if any(call.arguments.input_sizes != first.arguments.input_sizes for call in sized):
        return []
    return sized if len(sized) > 1 or _came_as_before(facts, first) else []


def _came_as_before(facts: CaseFacts, call: Call) -> bool:
    """True if the rank's operation before this one in its group was the same, of one size."""
    dump = facts.dumps.get(call.rank)
    if dump is None or dump.entries is None:
        return False
    entries = dump.entries
    mine = entries.in_group(call.group.name) & ~entries.is_p2p
    before = np.flatnonzero(mine & (entries.seq == (call.seq or 0) - 1))
    return any(
        entries.operation_at(row).op == call.op
        and entries.arguments_at(row).input_sizes == call.arguments.input_sizes
        for row in map(int, before)
    )
