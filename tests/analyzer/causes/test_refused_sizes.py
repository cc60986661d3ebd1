"""A rank that gloo aborted over a size, known only by its last words and its peers' buffers."""

from __future__ import annotations

import signal

import pytest
from graph_rows import Row, columns
from views import C10D, ended, job, progress, raised, user, view

from hanglab.analyzer.engine import conclude
from hanglab.analyzer.facts.gloo_pieces import is_piece
from hanglab.analyzer.flight_recorder.columns import Arguments
from hanglab.analyzer.matching.calls import Call, ProcessGroup
from hanglab.analyzer.verdict import Cause, Status
from hanglab.recorder.case.progress_records import OperationCall
from hanglab.recorder.case.records import Clock, StackFrame

WORDS = (
    "terminate called after throwing an instance of 'gloo::EnforceNotMet'\n"
    "  what():  [enforce fail at /gloo/transport/tcp/pair.cc:456] op.preamble.length <= op.nbytes. "
    "{} vs {}. Received data size doesn't match expected size.\n"
)
LOST = "[/gloo/gloo/transport/tcp/pair.cc:537] Read error [127.0.0.1]:38309: Connection reset"


def verdict_on(words: str, sizes: tuple[int, ...] = (394752,), other: tuple[int, ...] = ()):  # type: ignore[no-untyped-def]
    aborted = ended(view(1), code=None, signal=signal.SIGABRT)
    aborted.stderr = words
    peers = [
        raised(view(r), "RuntimeError", LOST, StackFrame("all_reduce", C10D, 1), user(20), at=2000)
        for r in (0, 2, 3)
    ]
    known = job([aborted, *peers], trigger=None)
    group = known.graph.groups[0]
    for rank in (0, 2, 3):
        mine = other if other and rank == 3 else sizes
        given = Arguments(input_sizes=(mine,), input_dtypes=("Float",))
        known.graph.last_calls[rank] = Call(rank, group, 4, "all_reduce", given)
    return conclude(known)


def test_the_aborted_rank_expected_less_than_all_others_send() -> None:
    # 394752 floats in eight pieces: run with DistributedDataParallel on four ranks.
    verdict = verdict_on(WORDS.format(197376, 65920))
    assert (verdict.status, verdict.cause) == (Status.FAILED, Cause.SIZE_MISMATCH)
    assert verdict.culprits == [1] and verdict.location is None
    assert verdict.confidence < 0.9 and verdict.alternatives
    assert verdict.collective is not None and verdict.collective.seq == 4


def test_what_was_noted_before_the_call_outlives_the_buffer() -> None:
    # 104 floats in two halves, run with all_gather on four ranks; rank 3 was asked to end.
    aborted = ended(view(1), code=None, signal=signal.SIGABRT)
    aborted.stderr = WORDS.format(208, 192)
    peers = [
        raised(view(r), "RuntimeError", LOST, StackFrame("all_gather", C10D, 1), user(20), at=2000)
        for r in (0, 2)
    ]
    known = job([aborted, *peers, ended(view(3), code=None, signal=signal.SIGTERM)], trigger=None)
    group = known.graph.groups[0]
    sized = Arguments(input_sizes=((13, 8),), input_dtypes=("Float",))
    line = (user(13, "gather"),)
    for rank in range(4):
        given = sized if rank in (0, 2) else Arguments()
        known.graph.last_calls[rank] = Call(rank, group, 2, "all_gather", given, line)
    verdict = conclude(known)
    assert (verdict.cause, verdict.culprits) == (Cause.SIZE_MISMATCH, [1])
    assert verdict.location is not None and verdict.location.line == 13
    known.graph.last_calls[1] = Call(1, group, 2, "all_reduce", Arguments(), line)
    assert conclude(known).cause is not Cause.SIZE_MISMATCH


def without_buffers(lines: tuple[int, int], own: int = 30, *, inside: bool = True):  # type: ignore[no-untyped-def]
    """Three ranks: rank 2 was aborted at line ``own``, the others lost it at theirs."""
    aborted = progress(ended(view(2), code=None, signal=signal.SIGABRT), 5)
    aborted.stderr = WORDS.format(88, 4)
    assert aborted.progress is not None
    over = None if inside else 3
    aborted.progress.operations = [OperationCall(0, "allreduce", "0", 1, 2, 2, over)]
    peers = [
        raised(view(r), "RuntimeError", f"{LOST} by peer", user(line), at=2000)
        for r, line in enumerate(lines)
    ]
    known = job([*peers, aborted], trigger=None)
    call = Call(2, known.graph.groups[0], 126, "all_reduce", Arguments(), (user(own),))
    known.graph.last_calls[2] = call
    return conclude(known)


def test_without_any_buffer_the_lines_tell_who_was_elsewhere() -> None:
    verdict = without_buffers((10, 10))
    assert (verdict.status, verdict.cause) == (Status.FAILED, Cause.COLLECTIVE_MISMATCH)
    assert verdict.culprits == [2] and verdict.confidence <= 0.6
    assert verdict.location is not None and verdict.location.line == 30


@pytest.mark.parametrize(
    ("lines", "own", "inside"),
    [
        # The peers were in different operations: any of them may have sent it.
        ((10, 12), 30, True),
        # All stood at one line.
        ((30, 30), 30, True),
        # What was noted of it is over: what it was in never passed the boundary.
        ((10, 10), 30, False),
    ],
)
def test_without_any_buffer_it_is_not_accused_of_another_line(
    lines: tuple[int, int], own: int, inside: bool
) -> None:
    verdict = without_buffers(lines, own, inside=inside)
    assert verdict.cause is not Cause.COLLECTIVE_MISMATCH
    assert "hangs" not in verdict.summary


@pytest.mark.parametrize(
    ("words", "other"),
    [
        # What came is no piece of what the peers send.
        (WORDS.format(197380, 65920), ()),
        # The peers do not agree: any of them may have sent it.
        (WORDS.format(197376, 65920), (1000,)),
        ("terminate called without an active exception\n", ()),
    ],
)
def test_otherwise_it_is_not_accused_of_a_size(words: str, other: tuple[int, ...]) -> None:
    assert verdict_on(words, other=other).cause is not Cause.SIZE_MISMATCH


def others_agree(  # type: ignore[no-untyped-def]
    received: int, sizes: tuple[int, ...] = (1,), *, others: int = 2, expected: int = 4
):
    """Rank 0 was aborted in all_reduce 14 of one number; of rank 3 an older call is known."""
    aborted = ended(view(0), code=None, signal=signal.SIGABRT)
    aborted.stderr = WORDS.format(received, expected)
    asked = [ended(view(r), code=None, signal=signal.SIGTERM) for r in (1, 2, 3)]
    known = job([aborted, *asked], trigger=None)
    group = known.graph.groups[0]
    for rank in range(1 + others):
        given = Arguments(input_sizes=(sizes if rank == 1 else (1,),), input_dtypes=("Float",))
        known.graph.last_calls[rank] = Call(rank, group, 14, "all_reduce", given)
    known.graph.last_calls[3] = Call(3, group, 9, "all_reduce", Arguments(), (user(20),))
    return conclude(known)


def test_what_none_of_those_in_the_same_operation_sends_came_from_the_other_one() -> None:
    # A piece of 577 floats, run with DistributedDataParallel on four ranks of uneven inputs.
    verdict = others_agree(292)
    assert (verdict.status, verdict.cause) == (Status.FAILED, Cause.COLLECTIVE_MISMATCH)
    assert verdict.culprits == [3] and verdict.victims == [0, 1, 2]
    assert {one.cause for one in verdict.alternatives} >= {Cause.UNEVEN_INPUTS}


@pytest.mark.parametrize(
    ("received", "sizes", "others", "expected"),
    [
        (4, (1,), 2, 4),  # That is what they send there.
        (292, (577,), 2, 4),  # One of them may have sent it.
        (292, (1,), 1, 4),  # So may each of two of which nothing is known.
        (292, (1,), 2, 148),  # The aborted rank was past that: so may those with it be.
    ],
)
def test_else_nobody_is_accused_of_what_came(
    received: int, sizes: tuple[int, ...], others: int, expected: int
) -> None:
    verdict = others_agree(received, sizes, others=others, expected=expected)
    assert verdict.cause is not Cause.COLLECTIVE_MISMATCH and 3 not in verdict.culprits


@pytest.mark.parametrize(
    ("op", "sizes", "size", "is_one"),
    [
        ("all_gather", (1,), 4, True),  # It cuts bytes in halves, ...
        ("broadcast", (1,), 4, False),  # ... and nothing else does.
        ("broadcast", (1,), 8, True),
        ("all_reduce", (1200,), 400, True),  # Rings cut what each rank has once more.
        ("gather", (1200,), 400, False),
        ("gather", (1200,), 2400, True),
    ],
)
def test_pieces_are_those_that_the_operation_sends(
    op: str, sizes: tuple[int, ...], size: int, is_one: bool
) -> None:
    group = job([view(r) for r in range(4)]).graph.groups[0]
    call = Call(0, group, 3, op, Arguments(input_sizes=(sizes,), input_dtypes=("Long",)))
    assert is_piece(call, size) is is_one


def test_peers_that_the_launcher_ended_in_the_same_moment_did_not_fail_first() -> None:
    # A signal of torchrun was noted a millisecond before the abort that it answers.
    aborted = ended(view(2), code=None, signal=signal.SIGABRT)
    aborted.stderr = WORDS.format(136, 8)
    others = [ended(view(rank), code=None, signal=signal.SIGTERM) for rank in (0, 1, 3)]
    for later, one in enumerate([others[0], aborted, *others[1:]]):
        assert one.exit is not None
        one.exit.at = Clock(1_000_000 * later, 1_000_000 * later)
    known = job([*others, aborted], trigger="exit")
    call = Call(2, known.graph.groups[0], 45, "all_reduce", sized_as((1,)), (user(18),))
    known.graph.last_calls[2] = call
    verdict = conclude(known)
    assert verdict.status is Status.INCONCLUSIVE and verdict.culprits == []


@pytest.mark.parametrize(("before", "culprits"), [((16, 16), [3]), ((8, 16), [])])
def test_of_two_members_the_one_that_came_as_before_is_not_accused(
    before: tuple[int, int], culprits: list[int]
) -> None:
    aborted = ended(view(3), code=None, signal=signal.SIGABRT)
    aborted.stderr = WORDS.format(512, 256)
    lost = [raised(view(r), "RuntimeError", LOST, user(11), at=2000) for r in (0, 1, 2)]
    known = job([*lost, aborted], trigger=None)
    pair = ProcessGroup("4", (1, 3))
    sizes = {6: before, 7: (16, 16)}
    rows = [Row("all_gather", seq, "4", inputs=[size]) for seq, size in sizes.items()]
    known.dumps[1] = columns(1, rows, members={"4": [1, 3]}, backend="gloo")
    for rank, given in ((1, sized_as((16, 16))), (3, Arguments())):
        known.graph.last_calls[rank] = Call(rank, pair, 7, "all_gather", given, (user(11),))
    verdict = conclude(known)
    assert verdict.culprits == culprits
    assert (verdict.cause is Cause.SIZE_MISMATCH) == bool(culprits)


def test_of_several_members_one_size_alone_accuses_nobody() -> None:
    # Who left no entries may be of the same mind as the aborted one.
    aborted = ended(view(1), code=None, signal=signal.SIGABRT)
    aborted.stderr = WORDS.format(512, 256)
    lost = raised(view(0), "RuntimeError", LOST, user(11), at=2000)
    known = job([lost, aborted, ended(view(2), code=None, signal=signal.SIGTERM)], trigger=None)
    group = known.graph.groups[0]
    for rank in range(3):
        given = sized_as((16, 16)) if rank == 0 else Arguments()
        known.graph.last_calls[rank] = Call(rank, group, 7, "all_gather", given, (user(11),))
    assert conclude(known).cause is not Cause.SIZE_MISMATCH


def test_who_raised_after_a_refused_size_has_still_failed_by_itself() -> None:
    # A rank may tell its peers of an error by an operation of its own, and raise it then.
    aborted = ended(view(1), code=None, signal=signal.SIGABRT)
    aborted.stderr = WORDS.format(136, 8)
    assert aborted.exit is not None
    late = aborted.exit.at.wall_ns + 5_000_000
    failed = raised(view(0), "ValueError", "label 8 of 5", user(18), at=late)
    assert failed.exit is not None
    failed.exit.at = Clock(late + 1_000_000, late + 1_000_000)
    verdict = conclude(job([failed, aborted], trigger="exit"))
    assert (verdict.cause, verdict.culprits) == (Cause.EXCEPTION, [0])


def sized_as(size: tuple[int, ...]) -> Arguments:
    return Arguments(input_sizes=(size,), input_dtypes=("Float",))


@pytest.mark.parametrize(
    ("expected", "cause"),
    [(704, Cause.COLLECTIVE_MISMATCH), (600, Cause.SIZE_MISMATCH)],
)
@pytest.mark.parametrize("known", [True, False])
def test_a_size_of_another_operation_of_the_job_is_that_operation(
    expected: int, cause: Cause, known: bool
) -> None:
    # Gathers of FSDP's 363 floats, and one of 11 x 32 of a weight: run on three ranks.
    aborted = ended(view(0), code=None, signal=signal.SIGABRT)
    aborted.stderr = WORDS.format(726, expected)
    lost = [raised(view(r), "RuntimeError", LOST, user(40), at=2000) for r in (1, 2)]
    facts = job([aborted, *lost], trigger=None)
    group = facts.graph.groups[0]
    rows = [Row("all_gather", 1, inputs=[(363,)]), Row("all_gather", 2, inputs=[(11, 32)])]
    rows += [Row("reduce_scatter", 3, inputs=[(1089,)]), Row("all_gather", 4, inputs=[(363,)])]
    for rank in (1, 2):
        facts.dumps[rank] = columns(rank, rows, members={"0": range(3)}, backend="gloo")
        sized = sized_as((363,))
        facts.graph.last_calls[rank] = Call(rank, group, 4, "all_gather", sized, (user(40),))
    if known:  # It is past what is known of it, at another line.
        last = Call(0, group, 3, "reduce_scatter", Arguments(), (user(40),), completed=True)
        facts.graph.last_calls[0] = last
    verdict = conclude(facts)
    assert (verdict.status, verdict.cause, verdict.culprits) == (Status.FAILED, cause, [0])
    assert verdict.location is None
    assert ("11, 32" in verdict.summary) == (cause is Cause.COLLECTIVE_MISMATCH)


@pytest.mark.parametrize(
    ("behind", "recorded", "received", "named"),
    [
        # Its peers had called the same line once less; what came is none of this call.
        (40, True, 432, True),
        (None, True, 432, True),
        # One of them is in it as well, nobody knows of one what it called, or it may be of that.
        (48, True, 432, False),
        (40, False, 432, False),
        (40, True, 4, False),
    ],
)
def test_without_any_buffer_the_boundary_tells_who_alone_came_to_a_call(
    behind: int | None, recorded: bool, received: int, named: bool
) -> None:
    aborted = progress(ended(view(0), code=None, signal=signal.SIGABRT), 5)
    aborted.stderr = WORDS.format(received, 4)
    assert aborted.progress is not None
    aborted.progress.operations = [OperationCall(0, "allreduce", "0", 1, 2, 2)]
    peers = [ended(view(rank), code=None, signal=signal.SIGTERM) for rank in (1, 2, 3)]
    known = job([aborted, *(progress(p, 5) if recorded else p for p in peers)], trigger=None)
    group = known.graph.groups[0]
    given = Arguments(input_sizes=((1,),), input_dtypes=("Float",))
    known.graph.last_calls[0] = Call(0, group, 48, "all_reduce", given, (user(37),))
    for rank in (1, 2, 3):
        seq = behind if rank == 3 else 40
        if seq is not None:
            known.graph.last_calls[rank] = Call(rank, group, seq, "all_reduce", given, (user(37),))
    verdict = conclude(known)
    assert (verdict.culprits == [0]) == named
    if named:
        assert verdict.cause is Cause.COLLECTIVE_MISMATCH and verdict.confidence <= 0.6
        assert verdict.location is not None and verdict.location.line == 37


@pytest.mark.parametrize(
    ("rows", "room", "culprits"),
    [
        ((None, 7, 9), 42, [2]),
        ((None, 7, 9), 54, [1]),
        ((None, 7, 9, 9), 42, [0, 1, 2, 3]),
        ((None, 7, 9), 30, []),
    ],
)
def test_an_aborted_rank_votes_by_what_it_had_room_for(
    rows: tuple[int | None, ...], room: int, culprits: list[int]
) -> None:
    """The last batch of an evaluation, gathered, where the last rank has the rest of the rows."""
    aborted = ended(view(0), code=None, signal=signal.SIGABRT)
    aborted.stderr = WORDS.format(54, room)
    where = StackFrame("all_gather", C10D, 1), user(20)
    peers = [raised(view(r), "RuntimeError", LOST, *where, at=2000) for r in range(1, len(rows))]
    known = job([aborted, *peers], trigger=None)
    for rank, count in enumerate(rows):
        sizes = () if count is None else ((count, 3),)
        given = Arguments(input_sizes=sizes, input_dtypes=("Float",) * len(sizes))
        known.graph.last_calls[rank] = Call(rank, known.graph.groups[0], 9, "all_gather", given)
    verdict = conclude(known)
    assert verdict.culprits == culprits
    if culprits:
        assert (verdict.status, verdict.cause) == (Status.FAILED, Cause.SIZE_MISMATCH)
        assert (verdict.confidence <= 0.5) is (len(culprits) > 1)


@pytest.mark.parametrize(
    ("before", "room", "culprits"),
    [((8, 8, 8), 8, [0]), ((16, 16, 16), 8, [1]), ((8, 16, 8), 8, [0, 1]), ((), 8, [0, 1])],
)
def test_of_a_message_the_receivers_earlier_ones_tell_whose_size_changed(
    before: tuple[int, ...], room: int, culprits: list[int]
) -> None:
    """Sixteen floats came from rank 0, and rank 1 had room for eight."""
    aborted = ended(view(1), code=None, signal=signal.SIGABRT)
    aborted.stderr = WORDS.format(64, 4 * room)
    peers = [
        raised(view(r), "RuntimeError", LOST, StackFrame("recv", C10D, 1), user(20), at=2000)
        for r in (0, 2, 3)
    ]
    known = job([aborted, *peers], trigger=None)
    group = known.graph.groups[0]
    sizes = (*before, room)
    rows = [Row("recv 1<-0", 0, inputs=((size,),), p2p_seq=n) for n, size in enumerate(sizes, 1)]
    sent = [Row("send 0->1", 0, inputs=((16,),), p2p_seq=1, line=17)]
    members = {"0": range(4)}
    known.dumps = {1: columns(1, rows, members=members), 0: columns(0, sent, members=members)}
    given = Arguments(input_sizes=((room,),), input_dtypes=("Float",))
    known.graph.last_calls[1] = Call(1, group, None, "recv", given, (user(18),), peer=0)
    verdict = conclude(known)
    assert (verdict.cause, verdict.culprits) == (Cause.SIZE_MISMATCH, culprits)
    assert verdict.location is not None
    assert verdict.location.line == (17 if culprits == [0] else 18)
