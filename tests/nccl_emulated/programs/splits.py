"""Communicators that are made at once, by a split of the default group's, or while hosts go on."""

from __future__ import annotations

import os
import sys
import threading

import torch
import torch.distributed as dist

sys.path.insert(0, os.path.dirname(__file__))
from behaviours import SILENCE_S
from forked_ranks import PATIENCE_S, Rank, comes


def bound(rank: Rank) -> None:
    """A job whose default group is bound to a device, if BOUND says so."""
    from hanglab.harness.nccl_emulated.activation import activate

    torch.set_num_threads(1)
    activate()
    dist.init_process_group(
        "nccl", store=dist.FileStore(str(rank.folder / "store"), rank.size), rank=rank.number,
        world_size=rank.size,
        device_id=torch.device("cuda", 0) if os.environ.get("BOUND", "1") == "1" else None,
    )  # fmt: skip


def group_of_two(rank: Rank) -> None:
    """Ranks 0 and 1 make a group; rank 2, which is not in it, calls new_group later."""
    bound(rank)
    if rank.number == 2:
        rank.wait_for("looked")
        rank.tell(outside=dist.new_group([0, 1]) == dist.GroupMember.NON_GROUP_MEMBER)
        return
    made: list[object] = []
    thread = threading.Thread(target=lambda: made.append(dist.new_group([0, 1])))
    thread.start()
    rank.tell(blocked=not comes(lambda: bool(made), SILENCE_S * 2))
    rank.signal(f"looked{rank.number}")
    for number in range(2):
        rank.wait_for(f"looked{number}")
    rank.signal("looked")
    assert comes(lambda: bool(made), PATIENCE_S)
    tensor = torch.ones(2)
    dist.all_reduce(tensor, group=made[0])  # type: ignore[arg-type]
    rank.tell(value=tensor.tolist())


def outsider_blocks(rank: Rank) -> None:
    """Rank 2 is in no new group, and its host waits for the members all the same."""
    bound(rank)
    made: list[object] = []
    if rank.number < 2:
        rank.wait_for("looked")
        made.append(dist.new_group([0, 1]))
        return
    thread = threading.Thread(target=lambda: made.append(dist.new_group([0, 1])))
    thread.start()
    rank.tell(blocked=not comes(lambda: bool(made), SILENCE_S * 2))
    rank.signal("looked")
    rank.tell(free=comes(lambda: bool(made), PATIENCE_S))


def halves(rank: Rank) -> None:
    """One call splits the default group in two; then a split leaves rank 3 out."""
    bound(rank)
    half = dist.split_group(split_ranks=[[0, 1], [2, 3]])
    tensor = torch.full((2,), float(rank.number))
    dist.all_reduce(tensor, group=half)
    three = dist.split_group(split_ranks=[[0, 1, 2]], group_desc="three")
    other = torch.ones(1)
    if three is not None:
        dist.all_reduce(other, group=three)
    rank.tell(
        value=tensor.tolist()[0], three=three is not None, other=other.item(),
        size=dist.get_world_size(half), desc=None if three is None else three.group_desc,
        members=dist.get_process_group_ranks(half),
    )  # fmt: skip
    dist.destroy_process_group()


def one_call_less(rank: Rank) -> None:
    """Rank 2 leaves out its call for the first of two groups; so its second meets their first."""
    bound(rank)
    made = []

    def make() -> None:
        if rank.number != 2:
            made.append(dist.new_group([0, 1]))
        made.append(dist.new_group([0, 1, 2]))

    thread = threading.Thread(target=make, daemon=True)
    thread.start()
    # Rank 2 alone gets through.
    wait_s = PATIENCE_S if rank.number == 2 else SILENCE_S * 3
    rank.tell(through=comes(lambda: not thread.is_alive(), wait_s), made=len(made))
    rank.signal(f"told{rank.number}")
    for number in range(3):
        rank.wait_for(f"told{number}")
    os._exit(0)


def late_member(rank: Rank) -> None:
    """Rank 1 initialises late: who waits for it, and where."""
    if rank.number == 1:
        rank.wait_for("looked")
        bound(rank)
        tensor = torch.ones(2)
        dist.all_reduce(tensor)
        rank.tell(value=tensor.tolist())
        return
    states: list[str] = []

    def initialise() -> None:
        bound(rank)
        states.append("initialised")
        dist.all_reduce(torch.ones(2))
        states.append("launched")

    thread = threading.Thread(target=initialise, daemon=True)
    thread.start()
    if os.environ["TORCH_NCCL_USE_COMM_NONBLOCKING"] == "1":
        comes(lambda: bool(states), PATIENCE_S)
    comes(lambda: len(states) > 1, SILENCE_S * 3)
    rank.tell(before=list(states))
    rank.signal("looked")
    assert comes(lambda: len(states) == 2, PATIENCE_S)
    rank.tell(after=list(states))


def never_ready(rank: Rank) -> None:
    """Nobody comes within the time that TORCH_NCCL_NONBLOCKING_TIMEOUT gives."""
    if rank.number == 1:
        rank.wait_for("told")
        return
    bound(rank)
    try:
        dist.all_reduce(torch.ones(2))
    except RuntimeError as error:
        rank.tell(error=str(error))
    rank.signal("told")
    os._exit(0)
