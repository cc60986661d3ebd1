"""Placement of ranks on nodes."""

from __future__ import annotations

from hanglab.harness.launchers.protocol import LaunchError


class TooManyNodes(LaunchError):
    """There are fewer ranks than nodes."""

    advice = "Ask for fewer nodes, or more ranks."


def placed(world_size: int, nodes: int | None) -> list[tuple[int, ...]]:
    """The ranks of each node, in blocks as even as can be; without a number one rank each.

    Raises TooManyNodes.
    """
    count = world_size if nodes is None else nodes
    if count > world_size:
        raise TooManyNodes(f"{world_size} ranks do not fill {count} nodes.")
    least, more = divmod(world_size, count)
    blocks = []
    first = 0
    for number in range(count):
        size = least + (number < more)
        blocks.append(tuple(range(first, first + size)))
        first += size
    return blocks


def devices_of(ranks: tuple[int, ...], devices: str) -> list[str]:
    """GPUs of a node, out of CUDA_VISIBLE_DEVICES: ranks go round over them."""
    names = [name for name in devices.split(",") if name]
    if not names:
        return []
    return list(dict.fromkeys(names[rank % len(names)] for rank in ranks))
