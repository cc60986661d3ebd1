"""From the windows of the ranks to a report."""

from __future__ import annotations

from collections.abc import Callable, Collection

from hanglab.recorder.scores import kernel_score, relative_scores
from hanglab.recorder.scores.kernels import common_medians
from hanglab.recorder.straggler.peers import Heard
from hanglab.recorder.straggler.reporting import Report
from hanglab.recorder.straggler.window import SectionWindow, Window

RELATIVE, INDIVIDUAL = "relative_perf_scores", "individual_perf_scores"


def make_report(
    own: Window,
    heard: Heard,
    *,
    scores: Collection[str],
    gathered: bool,
    unasked: bool,
    warnings: tuple[str, ...],
    elapsed_ms: float,
) -> Report:
    """Report of the rank whose window is ``own``, from it and what was heard of the others."""
    windows = {**heard.windows, own.rank: own}
    # Where every rank reports on itself, the others serve as reference only.
    ranks = sorted({*windows, *heard.missing}) if gathered else [own.rank]
    sections = sorted(
        {name for rank in ranks if rank in windows for name in windows[rank].sections}
    )
    alone = heard.world_size == 1
    gpu_relative: dict[int, float | None] = {}
    section_relative: dict[str, dict[int, float | None]] = {}
    if RELATIVE in scores:
        for name in sections:
            found = relative_scores(
                {r: _median(windows.get(r), name) for r in sorted({*windows, *ranks})}, alone
            )
            section_relative[name] = {rank: found[rank] for rank in ranks}
        kernels = {rank: window.kernels for rank, window in windows.items() if window.kernels}
        reference = common_medians(kernels) if len(kernels) > 1 or alone else {}
        gpu_relative = {rank: kernel_score(kernels.get(rank, {}), reference) for rank in ranks}
    gpu_individual: dict[int, float | None] = {}
    section_individual: dict[str, dict[int, float | None]] = {}
    if INDIVIDUAL in scores:
        for rank in ranks:
            window = windows.get(rank)
            gpu_individual[rank] = window.gpu_individual if window is not None else None
        section_individual = {
            name: {rank: _of(windows.get(rank), name, lambda s: s.individual) for rank in ranks}
            for name in sections
        }
    return Report(
        gpu_relative_perf_scores=gpu_relative,
        section_relative_perf_scores=section_relative,
        gpu_individual_perf_scores=gpu_individual,
        section_individual_perf_scores=section_individual,
        rank_to_node={
            **{rank: heard.nodes.get(rank, "") for rank in ranks},
            **{rank: windows[rank].node for rank in ranks if rank in windows},
        },
        local_section_summaries={
            name: section.wall.statistics()
            for name, section in own.sections.items()
            if section.wall is not None
        },
        local_kernel_summaries={name: k.statistics() for name, k in own.kernels.items()},
        generate_report_elapsed_time=elapsed_ms,
        gather_on_rank0=gathered,
        rank=own.rank,
        windows=windows,
        missing=heard.missing if gathered else {},
        warnings=warnings,
        unasked=unasked,
    )


def _median(window: Window | None, name: str) -> float | None:
    return _of(window, name, lambda section: section.work.median if section.work else None)


def _of(
    window: Window | None, name: str, read: Callable[[SectionWindow], float | None]
) -> float | None:
    section = window.sections.get(name) if window is not None else None
    return None if section is None else read(section)
