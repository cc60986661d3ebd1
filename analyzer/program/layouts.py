"""Healthy jobs of common parallel layouts: their groups, and one training step of every rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hanglab.analyzer.errors import InputError
from hanglab.analyzer.program.program import Action, ProgramGroup


class LayoutError(InputError):
    """A layout that the number of ranks does not fit."""

    advice = "Choose another number of ranks, or the layout `world`, which takes any."
    exit_code = 64


@dataclass(frozen=True)
class Layout:
    """``steps[r]`` is what rank r does in each step; the last action joins all ranks."""

    groups: tuple[ProgramGroup, ...]
    #: Indices of each rank's groups.
    memberships: tuple[tuple[int, ...], ...]
    steps: tuple[tuple[Action, ...], ...]


class _Grid:
    """Groups along the axes of a grid of ranks; the last axis runs fastest."""

    def __init__(self, *axes: int) -> None:
        self._axes = axes
        self._ranks = 1
        for length in axes:
            self._ranks *= length
        self.groups = [ProgramGroup("0", tuple(range(self._ranks)), "default_pg")]
        self.memberships: list[list[int]] = [[0] for _ in range(self._ranks)]

    def position(self, rank: int, axis: int) -> int:
        stride = 1
        for length in self._axes[axis + 1 :]:
            stride *= length
        return rank // stride % self._axes[axis]

    def split(self, axis: int, description: str) -> None:
        """A group of each line of ranks along ``axis``."""
        stride = 1
        for length in self._axes[axis + 1 :]:
            stride *= length
        for first in range(self._ranks):
            if self.position(first, axis):
                continue
            members = tuple(first + stride * n for n in range(self._axes[axis]))
            for rank in members:
                self.memberships[rank].append(len(self.groups))
            self.groups.append(ProgramGroup(str(len(self.groups)), members, description))

    def layout(self, step: Callable[[int, list[int]], Iterator[Action]]) -> Layout:
        """Every rank's step, from its number and its groups; equal steps are one object."""
        steps = tuple(tuple(step(rank, mine)) for rank, mine in enumerate(self.memberships))
        return Layout(tuple(self.groups), tuple(map(tuple, self.memberships)), steps)


def _divisor(ranks: int, name: str, most: int = 8) -> int:
    """Size of the inner groups: the largest that leaves at least two of them."""
    for size in (most, most // 2, most // 4):
        if size > 1 and ranks % size == 0 and ranks >= 2 * size:
            return size
    raise LayoutError(f"The layout {name} needs an even number of at least 4 ranks, not {ranks}.")


def _world(ranks: int) -> Layout:
    def step(rank: int, groups: list[int]) -> Iterator[Action]:
        for bucket in range(3):
            yield Action("all_reduce", 0, site=20 + bucket, numel=4096 << bucket, overlap=True)
        yield Action("all_gather", 0, site=24, numel=8)
        yield Action("all_reduce", 0, site=25, joins=True)

    return _Grid(ranks).layout(step)


def _fsdp(ranks: int) -> Layout:
    def step(rank: int, groups: list[int]) -> Iterator[Action]:
        for layer in range(3):
            yield Action("all_gather", 0, site=30 + layer, numel=2048 + layer, dtype="BFloat16")
        for layer in range(3):
            yield Action("reduce_scatter", 0, site=40 + layer, numel=2048 + layer)
        yield Action("all_reduce", 0, site=50, joins=True)

    return _Grid(ranks).layout(step)


def _hsdp(ranks: int) -> Layout:
    shard = _divisor(ranks, "hsdp")
    grid = _Grid(ranks // shard, shard)
    grid.split(1, "SHARD")
    grid.split(0, "REPLICATE")

    def step(rank: int, groups: list[int]) -> Iterator[Action]:
        world, inner, outer = groups
        for layer in range(2):
            yield Action("all_gather", inner, site=30 + layer, numel=2048 + layer)
        for layer in range(2):
            yield Action("reduce_scatter", inner, site=40 + layer, numel=2048 + layer)
            yield Action("all_reduce", outer, site=44 + layer, numel=2048 + layer)
        yield Action("all_reduce", world, site=50, joins=True)

    return grid.layout(step)


def _3d(ranks: int) -> Layout:
    if ranks % 8:
        raise LayoutError(f"The layout 3d needs a multiple of 8 ranks, not {ranks}.")
    return _stages("3d", ranks, context=1)


def _4d(ranks: int) -> Layout:
    if ranks % 16:
        raise LayoutError(f"The layout 4d needs a multiple of 16 ranks, not {ranks}.")
    return _stages("4d", ranks, context=2)


def _stages(name: str, ranks: int, context: int) -> Layout:
    """Pipeline stages of data, context (where that is more than 1) and tensor parallel ranks."""
    stages = 4 if ranks % (16 * context) == 0 else 2
    tensor = _divisor(ranks // stages // context, name)
    grid = _Grid(stages, ranks // stages // context // tensor, context, tensor)
    grid.split(3, "TENSOR")
    if context > 1:
        grid.split(2, "CONTEXT")
    grid.split(1, "DATA")
    grid.split(0, "PIPELINE")

    def step(rank: int, groups: list[int]) -> Iterator[Action]:
        world, inner, *sequence, data, pipeline = groups
        stage = grid.position(rank, 0)
        if stage:
            yield Action("recv", pipeline, site=60, numel=512, peer=stage - 1)
        for group in sequence:
            yield Action("all_gather", group, site=70, numel=384)
        yield Action("all_reduce", inner, site=61, numel=512)
        yield Action("all_reduce", inner, site=62, numel=256)
        if stage < stages - 1:
            yield Action("send", pipeline, site=63, numel=512, peer=stage + 1)
            yield Action("recv", pipeline, site=64, numel=512, peer=stage + 1)
        yield Action("all_reduce", inner, site=65, numel=512)
        for group in sequence:
            yield Action("reduce_scatter", group, site=71, numel=384)
        if stage:
            yield Action("send", pipeline, site=66, numel=512, peer=stage - 1)
        yield Action("reduce_scatter", data, site=67, numel=1024)
        yield Action("all_gather", data, site=68, numel=1024, dtype="BFloat16")
        yield Action("all_reduce", world, site=69, joins=True)

    return grid.layout(step)


def _moe(ranks: int) -> Layout:
    experts = _divisor(ranks, "moe")
    grid = _Grid(ranks // experts, experts)
    grid.split(1, "EXPERT")
    grid.split(0, "EXPERT_DATA")

    def step(rank: int, groups: list[int]) -> Iterator[Action]:
        world, expert, data = groups
        for layer in range(2):
            yield Action("all_to_all", expert, site=70 + layer, numel=256, dtype="BFloat16")
            yield Action("all_to_all", expert, site=72 + layer, numel=256, dtype="BFloat16")
        yield Action("all_reduce", data, site=76, numel=1024)
        yield Action("all_reduce", world, site=77, numel=4096)
        yield Action("all_reduce", world, site=78, joins=True)

    return grid.layout(step)


LAYOUTS: dict[str, Callable[[int], Layout]] = {
    "world": _world,
    "fsdp": _fsdp,
    "hsdp": _hsdp,
    "3d": _3d,
    "4d": _4d,
    "moe": _moe,
}


def make_layout(name: str, ranks: int) -> Layout:
    """The layout of that name.  Raises LayoutError where ``ranks`` do not fit it."""
    if ranks < 2:
        raise LayoutError(f"{ranks} rank has nobody to wait for: a job needs 2.")
    return LAYOUTS[name](ranks)
