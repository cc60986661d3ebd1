"""From the windows of the ranks to a report."""

from __future__ import annotations

from collections.abc import Collection

from hanglab.recorder.slowness import kernel_score
from hanglab.recorder.slowness.kernel_scores import common_medians
from hanglab.recorder.straggler.peers import PeerWindows
from hanglab.recorder.straggler.reporting import Report
from hanglab.recorder.straggler.window import TimingWindow

RELATIVE, INDIVIDUAL = "relative_perf_scores", "individual_perf_scores"


def make_report(
    own: TimingWindow,
    peers: PeerWindows,
    *,
    scores: Collection[str],
    gathered: bool,
    unasked: bool,
    warnings: tuple[str, ...],
    elapsed_ms: float,
) -> Report:
    """Report of the rank whose window is ``own``, from it and its peers'."""
    # numpy has no place in the import of a recorder.
    from hanglab.recorder.straggler.table import SectionTable, individual, relative, scores_by_rank

    windows = {**peers.windows, own.rank: own}
    # Where every rank reports on itself, the others serve as reference only.
    ranks = sorted({*windows, *peers.missing}) if gathered else [own.rank]
    everybody = sorted({*windows, *ranks})
    tables = [SectionTable.of(windows[r].sections if r in windows else {}) for r in everybody]
    places = [everybody.index(rank) for rank in ranks]
    sections = sorted({name for place in places for name in tables[place]})
    alone = peers.world_size == 1
    gpu_relative: dict[int, float | None] = {}
    section_relative: dict[str, dict[int, float | None]] = {}
    if RELATIVE in scores:
        section_relative = scores_by_rank(
            sections, ranks, relative(tables, sections, alone)[:, places]
        )
        kernels = {rank: window.kernels for rank, window in windows.items() if window.kernels}
        reference = common_medians(kernels) if len(kernels) > 1 or alone else {}
        gpu_relative = {rank: kernel_score(kernels.get(rank, {}), reference) for rank in ranks}
    gpu_individual: dict[int, float | None] = {}
    section_individual: dict[str, dict[int, float | None]] = {}
    if INDIVIDUAL in scores:
        for rank in ranks:
            window = windows.get(rank)
            gpu_individual[rank] = window.gpu_individual if window is not None else None
        section_individual = scores_by_rank(
            sections, ranks, individual(tables, sections)[:, places]
        )
    return Report(
        gpu_relative_perf_scores=gpu_relative,
        section_relative_perf_scores=section_relative,
        gpu_individual_perf_scores=gpu_individual,
        section_individual_perf_scores=section_individual,
        rank_to_node={
            **{rank: peers.nodes.get(rank, "") for rank in ranks},
            **{rank: windows[rank].node for rank in ranks if rank in windows},
        },
        local_section_summaries=SectionTable.of(own.sections).statistics(),
        local_kernel_summaries={name: k.statistics() for name, k in own.kernels.items()},
        generate_report_elapsed_time=elapsed_ms,
        gather_on_rank0=gathered,
        rank=own.rank,
        windows=windows,
        missing=peers.missing if gathered else {},
        warnings=warnings,
        unasked=unasked,
    )
