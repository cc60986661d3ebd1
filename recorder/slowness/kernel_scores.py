"""One score for all the kernels of a device."""

from __future__ import annotations

from collections.abc import Mapping

from hanglab.recorder.slowness.statistics import Summary


def kernel_score(kernels: Mapping[str, Summary], reference: Mapping[str, float]) -> float | None:
    """Mean over kernels of reference median over own median, weighted by time spent in each.

    A kernel without a reference (some rank has not run it) is left out; None if
    none is left.  Kernels are timed by the device, so that not even short ones
    blur.  The formula is that of NVIDIA's resiliency extension.
    """
    scores = weights = 0.0
    for name, kernel in kernels.items():
        best = reference.get(name)
        if best is None:
            continue
        weight = kernel.count * kernel.mean
        score = best / kernel.median if kernel.median > 0 else 1.0
        scores += weight * score
        weights += weight
    return scores / weights if weights > 0 else None


def common_medians(by_rank: Mapping[int, Mapping[str, Summary]]) -> dict[str, float]:
    """Lowest median of every kernel that all the ranks have run."""
    kernels = list(by_rank.values())
    if not kernels:
        return {}
    common = set(kernels[0]).intersection(*kernels[1:])
    return {name: min(of_rank[name].median for of_rank in kernels) for name in common}
