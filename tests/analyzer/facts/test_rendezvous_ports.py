"""Ports at which ranks stand that look for the store, from real sockets of this process."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from hanglab.analyzer.facts.case_facts import RankView
from hanglab.analyzer.facts.rendezvous_ports import RankPorts, ranks_elsewhere, standing_of
from hanglab.recorder.case.host_records import Connection, ConnectionSample
from hanglab.recorder.case.records import Clock, StackFrame, StackSample, ThreadStack
from hanglab.recorder.system.tcp_info import connections, in_namespace_of

AT = Clock(1_000, 1_000)
STORE = StackFrame("_create_c10d_store", "/x/site-packages/torch/distributed/rendezvous.py", 189)


@pytest.fixture
def sockets() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def listen(stack: ExitStack) -> socket.socket:
    server = stack.enter_context(socket.socket())
    server.bind(("127.0.0.1", 0))
    server.listen()
    return server


def connect(stack: ExitStack, server: socket.socket) -> socket.socket:
    """This process's end of a connection to ``server``."""
    one = stack.enter_context(socket.create_connection(server.getsockname()))
    stack.enter_context(server.accept()[0])
    return one


def port(one: socket.socket) -> str:
    return str(one.getsockname()[1])


def seen(*ends: socket.socket) -> list[Connection]:
    """What the kernel tells of the sockets, as the recorder reads it."""
    with in_namespace_of(os.getpid()) as sock:
        table = dict(connections(sock))
    return [table[os.fstat(one.fileno()).st_ino] for one in ends]


def rank_at(rank: int, *ends: socket.socket, frames: tuple[StackFrame, ...] = ()) -> RankView:
    thread = ThreadStack(frames=list(frames), main=True, os_thread_id=100 + rank)
    return RankView(
        rank=rank,
        stacks=[StackSample(at=AT, pid=100 + rank, kind="rank", threads=[thread])],
        connections=[ConnectionSample(at=AT, connections=seen(*ends))],
    )


def test_what_a_rank_has_reached_and_where_it_listens(sockets: ExitStack) -> None:
    store, other = listen(sockets), listen(sockets)
    one = standing_of(rank_at(3, connect(sockets, store), other, frames=(STORE,)))
    assert one == RankPorts(3, frozenset({port(store)}), frozenset({port(other)}), seeking=True)
    assert one.ports == {port(store), port(other)}


def test_a_connection_that_a_peer_made_is_not_reached(sockets: ExitStack) -> None:
    server = listen(sockets)
    sockets.enter_context(socket.create_connection(server.getsockname()))
    accepted = sockets.enter_context(server.accept()[0])
    one = standing_of(rank_at(0, server, accepted))
    assert (one.reached, one.listens) == (frozenset(), {port(server)})
    assert not one.seeking


def test_nothing_is_known_without_sockets_or_without_a_stack(sockets: ExitStack) -> None:
    whole = rank_at(1, listen(sockets))
    without_stack = RankView(rank=1, connections=whole.connections)
    without_sockets = RankView(rank=1, stacks=whole.stacks)
    assert standing_of(whole).known
    assert not standing_of(without_stack).known
    assert not standing_of(without_sockets).known


@pytest.mark.parametrize(("size", "odd"), [(3, 0), (3, 2), (4, 1), (8, 5)])
def test_the_one_that_looks_at_another_port(sockets: ExitStack, size: int, odd: int) -> None:
    """It retries: at the moment of the sample it has no connection at all."""
    store = listen(sockets)
    serving = next(rank for rank in range(size) if rank != odd)
    standings = []
    for rank in range(size):
        ends = [] if rank == odd else [connect(sockets, store)]
        ends += [store] if rank == serving else []
        standings.append(standing_of(rank_at(rank, *ends, frames=(STORE,))))
    found = ranks_elsewhere(standings)
    assert found is not None
    assert (found[0], [one.rank for one in found[1]]) == (port(store), [odd])


def test_the_one_that_has_reached_the_store_of_another_job(sockets: ExitStack) -> None:
    store, foreign = listen(sockets), listen(sockets)
    standings = [standing_of(rank_at(r, connect(sockets, store))) for r in range(3)]
    standings.append(standing_of(rank_at(3, connect(sockets, foreign))))
    found = ranks_elsewhere(standings)
    assert found is not None and [one.rank for one in found[1]] == [3]


def test_halves_that_stand_at_two_ports_tell_nothing(sockets: ExitStack) -> None:
    stores = [listen(sockets), listen(sockets)]
    standings = [
        standing_of(rank_at(r, connect(sockets, stores[r % 2]), frames=(STORE,))) for r in range(4)
    ]
    assert ranks_elsewhere(standings) is None


def test_one_rank_that_was_not_seen_may_stand_anywhere(sockets: ExitStack) -> None:
    store = listen(sockets)
    standings = [standing_of(rank_at(r, connect(sockets, store))) for r in range(2)]
    away = standing_of(rank_at(2, frames=(STORE,)))
    assert ranks_elsewhere([*standings, away]) is not None
    assert ranks_elsewhere([*standings, away, standing_of(RankView(rank=3))]) is None


def test_ranks_of_a_formed_job_stand_nowhere_else(sockets: ExitStack) -> None:
    """One that has closed its connection to the store, and seeks none, is not looking for it."""
    store = listen(sockets)
    standings = [standing_of(rank_at(r, connect(sockets, store))) for r in range(3)]
    assert ranks_elsewhere(standings) is None
    assert ranks_elsewhere([*standings, standing_of(rank_at(3))]) is None
    assert ranks_elsewhere([]) is None
