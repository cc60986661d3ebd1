"""Messages in dumps that leave out what has finished: members of batches stay, ends do not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from graph_rows import Row, dump_object, world

from hanglab.analyzer.flight_recorder.columns import RankDump
from hanglab.analyzer.flight_recorder.content import read_content
from hanglab.analyzer.flight_recorder.decoding import Decoded
from hanglab.analyzer.matching.completion import completed


def single(op: str, number: int, *, done: bool) -> list[Row]:
    """A message that no batch holds."""
    return [Row(op, 0, done=done, p2p_seq=number)]


def batch(number: int, *ops: str, done: bool) -> list[Row]:
    """Members of a batch never change their state, whatever becomes of it."""
    members = [Row(op, 0, state="scheduled", retired=False, p2p_seq=number) for op in ops]
    return [*members, Row("coalesced", 0, done=done, inputs=(), p2p_seq=number)]


def active_only(rows: Sequence[Row], status: tuple[int, int]) -> RankDump:
    """The dump of what is open, of rank 0 of three."""
    content = dump_object(rows, members=world(3), status={0: status})
    content["entries"] = [
        one for one in content["entries"] if one["state"] != "completed" and not one["retired"]
    ]
    decoded = Decoded(content)
    return read_content(decoded, rank=0, source="rank 0", from_json=False, contained=True)


def open_numbers(dump: RankDump) -> list[int]:
    entries = dump.entries
    assert entries is not None
    return sorted(set(entries.p2p_seq[np.flatnonzero(~completed(dump))].tolist()))


@pytest.mark.parametrize("ended", [0, 1, 2, 3])
def test_batches_of_one_message_have_ended_with_their_ends(ended: int) -> None:
    """A pipeline's first stage sends one message a batch: all of them were taken for open."""
    rows = [row for n in (1, 2, 3) for row in batch(n, "send 0->1", done=n <= ended)]
    assert open_numbers(active_only(rows, (3, ended))) == list(range(ended + 1, 4))


@pytest.mark.parametrize("later", [1, 2])
def test_a_receive_that_later_messages_overtook_is_open(later: int) -> None:
    """The last message that was issued has ended, and so has, it seemed, all that was before it."""
    rows = single("recv 0<-2", 1, done=False)
    rows += [row for n in range(2, 2 + later) for row in single("send 0->1", n, done=True)]
    assert open_numbers(active_only(rows, (1 + later, 1 + later))) == [1]


def test_among_batches_a_message_of_its_own_is_open() -> None:
    rows = [
        *batch(1, "send 0->1", "recv 0<-1", done=True),
        *single("recv 0<-2", 2, done=False),
        *batch(3, "send 0->1", "recv 0<-1", done=True),
    ]
    assert open_numbers(active_only(rows, (3, 3))) == [2]
