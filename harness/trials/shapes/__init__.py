"""Shapes that communication takes in training jobs, each legal by itself."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from hanglab.harness.trials.programs import Program
from hanglab.harness.trials.shapes.data_parallel import (
    any_source,
    checkpoint_thread,
    ddp,
    fsdp2,
    gloo_loop,
    hsdp,
    mixed_backends,
    unwaited,
)
from hanglab.harness.trials.shapes.divided import drafts, encoders, moves, prefill_and_decode
from hanglab.harness.trials.shapes.exchanges import (
    both_ends,
    gossip,
    ring_reduce,
    teachers,
)
from hanglab.harness.trials.shapes.hierarchies import (
    accumulation,
    hierarchical,
    sharded_embeddings,
    ulysses_ring,
)
from hanglab.harness.trials.shapes.layouts import (
    context_ring,
    experts,
    halo,
    rank_dependent_order,
    subsets,
    tensor_and_data,
    threads_of_a_rank,
)
from hanglab.harness.trials.shapes.neighbours import butterfly, grid, joined
from hanglab.harness.trials.shapes.phases import (
    adversaries,
    early_stop,
    objects,
    partial_evaluation,
)
from hanglab.harness.trials.shapes.pipelines import (
    early_receive,
    gpipe,
    interleaved,
    layout_3d,
    one_forward_one_backward,
    overlap,
)
from hanglab.harness.trials.shapes.replicas import evaluating_loop, replicated_pipeline
from hanglab.harness.trials.shapes.roles import (
    actors_and_rollouts,
    branches,
    islands,
    owners,
    routed_experts,
    tied_embeddings,
)
from hanglab.harness.trials.shapes.serving import dealt_batches, depths, server
from hanglab.harness.trials.shapes.uneven import dealer_and_workers, pipeline_with_loss

Shape = Callable[[Random], Program]

SHAPES: tuple[Shape, ...] = (
    ddp, checkpoint_thread, unwaited, fsdp2, hsdp, gloo_loop, any_source, mixed_backends,
    gpipe, overlap, early_receive, one_forward_one_backward, interleaved, layout_3d,
    tensor_and_data, experts, halo, context_ring, rank_dependent_order, subsets,
    threads_of_a_rank,
)  # fmt: skip

#: Shapes by the first seed that draws from them as well: tests hold seeds from before there were
#: these.
LATER_SHAPES: dict[int, tuple[Shape, ...]] = {
    2_000_000_000: (replicated_pipeline, evaluating_loop),
    4_000_000_000: (dealer_and_workers, pipeline_with_loss),
}


#: Shapes that alone are drawn from a first seed on, so that trials see them often.
ONLY_SHAPES: dict[int, tuple[Shape, ...]] = {
    5_000_000_000: (
        actors_and_rollouts, islands, owners, tied_embeddings, butterfly, grid, joined,
    ),
    5_500_000_000: (branches, routed_experts),
    6_000_000_000: (
        hierarchical, ulysses_ring, sharded_embeddings, accumulation, ring_reduce, gossip,
        teachers, both_ends, objects, adversaries, partial_evaluation, early_stop, server,
        dealt_batches, depths,
    ),
    6_500_000_000: (prefill_and_decode, drafts, encoders, moves),
}  # fmt: skip


#: From this first seed on all shapes are drawn alike.
ALL_SHAPES = 7_000_000_000


def shapes_of(seed: int) -> tuple[Shape, ...]:
    """The shapes that a seed draws from."""
    if seed >= ALL_SHAPES:
        others = (*LATER_SHAPES.values(), *ONLY_SHAPES.values())
        return SHAPES + tuple(shape for shapes in others for shape in shapes)
    alone = max((first for first in ONLY_SHAPES if seed >= first), default=None)
    if alone is not None:
        return ONLY_SHAPES[alone]
    return SHAPES + tuple(
        shape for first, later in LATER_SHAPES.items() if seed >= first for shape in later
    )
