"""Faults of devices and links, ordered from within the rank that they strike."""

from __future__ import annotations

import os
import sys
import time

import torch
import torch.distributed as dist

sys.path.insert(0, os.path.dirname(__file__))
from behaviours import SILENCE_S, connect, stays_open
from forked_ranks import PATIENCE_S, Rank, comes

#: Bytes of a message, and how many a second the narrow link carries.
MESSAGE = 4096
NARROW = 16384.0


def _order_link(rank: Rank, order: str, amount: float, more: str = "") -> None:
    """Both ends of the link between ranks 0 and 1."""
    from hanglab.harness.nccl_emulated.control import Order, give_order

    pids: list[int] = [0] * rank.size
    dist.all_gather_object(pids, os.getpid())
    if rank.number < 2:
        give_order(os.getpid(), Order[order], amount, f"{pids[1 - rank.number]}{more}")
        rank.signal(f"struck {rank.number}")
    for end in range(2):  # not by a barrier, which passes the link
        rank.wait_for(f"struck {end}")


def _send_round(rank: Rank) -> float:
    """Each rank sends to the next one; gives the seconds until its own message has come."""
    n, me = rank.size, rank.number
    into = torch.empty(MESSAGE, dtype=torch.uint8)
    begun = time.monotonic()
    works = [
        dist.irecv(into, (me - 1) % n),
        dist.isend(torch.ones(MESSAGE, dtype=torch.uint8), (me + 1) % n),
    ]
    comes(works[0].is_completed, PATIENCE_S)
    return time.monotonic() - begun


def narrow_link(rank: Rank) -> None:
    """Messages round the ring, each pair of ranks with its own communicator."""
    rank.join()
    for first in range(rank.size):  # connect the pairs one after the other
        if rank.number == first:
            dist.send(torch.ones(1), (first + 1) % rank.size)
        elif rank.number == (first + 1) % rank.size:
            dist.recv(torch.ones(1), first)
        dist.barrier()
    before = _send_round(rank)
    _order_link(rank, "NARROW_LINK", NARROW)
    rank.tell(before=before, after=_send_round(rank))
    dist.barrier()


def flapping_link(rank: Rank) -> None:
    """A reduction over a link that is down four times as long as is looked, and then up."""
    rank.join()
    connect()
    _order_link(rank, "FLAP_LINK", 4 * SILENCE_S, " 1000")
    tensor = torch.ones(2)
    work = dist.all_reduce(tensor, async_op=True)
    rank.tell(
        held=stays_open(work), came=comes(work.is_completed, PATIENCE_S), values=tensor.tolist()
    )


def link_down(rank: Rank) -> None:
    rank.join()
    connect()
    # It stays open for longer than that: without a time for which it is up it is down for good.
    _order_link(rank, "FLAP_LINK", SILENCE_S / 4, " 0")
    work = dist.all_reduce(torch.ones(2), async_op=True)
    started = comes(lambda: work.operation.started_ns > 0, PATIENCE_S)
    rank.tell(open=stays_open(work), started=started)
    os._exit(0)


def abort_ordered(rank: Rank) -> None:
    """Rank 1's communicators are aborted; its next launch is refused, and rank 0 waits."""
    from hanglab.harness.nccl_emulated.control import Order, give_order

    rank.join()
    connect()
    if rank.number == 1:
        give_order(os.getpid(), Order.ABORT)
        try:
            dist.all_reduce(torch.ones(2))
        except dist.DistBackendError as error:
            rank.tell(error=str(error))
        rank.wait_for("looked")
        os._exit(0)
    rank.tell(open=stays_open(dist.all_reduce(torch.ones(2), async_op=True)))
    rank.signal("looked")
    os._exit(0)


def memory_filled(rank: Rank) -> None:
    """Tensors for the device find no room; those of the host do."""
    from hanglab.harness.nccl_emulated.activation import activate
    from hanglab.harness.nccl_emulated.control import Order, give_order

    activate()
    rank.join()
    connect()
    torch.ones(4, device="cuda")
    give_order(os.getpid(), Order.FILL_MEMORY)
    told = {}
    for name, make in {
        "made": lambda: torch.randn(256, device="cuda"),
        "moved": lambda: torch.ones(256).to("cuda"),
        "on the host": lambda: torch.ones(256),
    }.items():
        try:
            make()
            told[name] = ""
        except torch.OutOfMemoryError as error:
            told[name] = str(error)
    rank.tell(**told, free=torch.cuda.mem_get_info()[0])


def xid_logged(rank: Rank) -> None:
    """Rank 1's device stops, and its driver says why."""
    from hanglab.harness.nccl_emulated.control import Order, give_order

    rank.join()
    connect()
    if rank.number == 1:
        give_order(os.getpid(), Order.HALT, 79.0)
        rank.tell(pid=os.getpid())
        log = os.path.join(os.environ["HANGLAB_RUNTIME"], "kernel.log")
        # Another thread makes the file before it writes into it.
        comes(lambda: os.path.exists(log) and os.path.getsize(log) > 0, PATIENCE_S)
    os._exit(0)
