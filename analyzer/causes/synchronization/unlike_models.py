"""Ranks whose model has other parameters than their peers', as DistributedDataParallel compares it.

It compares the number of parameters of each two ranks, and then each parameter's sizes with those
of process 0 (torch/csrc/distributed/c10d/reducer.cpp, verify_params_across_processes): each that
finds a difference raises, whoever is odd.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from hanglab.analyzer.facts.case_facts import CaseFacts, RankView
from hanglab.analyzer.facts.error_texts import UNLIKE_MODELS
from hanglab.analyzer.logs.tracebacks import printed_tracebacks
from hanglab.analyzer.proposal import Proposal, detector, propose
from hanglab.analyzer.strengths import CONFIRMED, TIED
from hanglab.analyzer.verdict import Cause, Evidence, Location
from hanglab.analyzer.wording import UNTOLD, name_line, name_ranks

_ADVICE = (
    "Build the same model on every rank: print the names and shapes of its parameters on the "
    "culprit and on a peer, and look for a branch on rank, data or a file that leads there."
)
_LIKE_FIRST = "the sizes of process 0"
_COUNTED = re.compile(r"\d+ parameters$")


@detector
def unlike_models(facts: CaseFacts) -> Iterator[Proposal]:
    """``size_mismatch`` of those whose model differs from most; of all where nothing tells."""
    said = {rank: one for rank, view in facts.ranks.items() if (one := _said(view)) is not None}
    models: dict[int, str] = {}
    for rank, (found, _) in said.items():
        # Ranks count within the group: only one that holds all in order is told by that.
        if any(models.setdefault(other, model) != model for other, model in found.items()):
            return
        models.setdefault(rank, _LIKE_FIRST)
    if not said or not models.keys() <= facts.ranks.keys():
        return
    if not any(_COUNTED.match(model) for model in models.values()):
        # Whoever differs from process 0 in sizes raises; the others have gone on.
        models |= {rank: _LIKE_FIRST for rank in facts.ranks if rank not in models}
    (usual, votes), *_ = Counter(models.values()).most_common(1)
    silent = len({*facts.ranks, *facts.inputs.missing_ranks}) - len(models)
    told = 2 * votes > len(models) + silent
    culprits = sorted(rank for rank in models if models[rank] != usual or not told)
    places = [said[rank][1] for rank in [*culprits, *said] if rank in said]
    location = next((one for one in places if one is not None), None)
    yield propose(
        facts,
        Cause.SIZE_MISMATCH,
        culprits,
        failure_on_record=True,
        confidence=CONFIRMED if told else TIED,
        summary=f"{name_ranks(culprits).capitalize()} gave DistributedDataParallel another model "
        f"than {'most' if told else 'each other'}{name_line(location)}: "
        f"{'; '.join(f'rank {rank} has {models[rank]}' for rank in culprits[:4])}"
        f"{f', the others {usual}' if told else UNTOLD}.",
        evidence=[Evidence("exceptions", rank, f"has {models[rank]}") for rank in sorted(models)],
        location=location,
        advice=_ADVICE,
    )


def _said(view: RankView) -> tuple[dict[int, str], Location | None] | None:
    """What torch told a rank of models, and where; None where it told nothing."""
    raised = [(one.message, list(one.frames)) for one in view.exceptions]
    printed = [(one.message, list(one.frames)) for one in printed_tracebacks(view.stderr)]
    for text, frames in (*raised, *printed):
        found = UNLIKE_MODELS.pattern.search(text)
        if found is None:
            continue
        frame = view.code.innermost_user(frames)
        place = view.location(frame) if frame is not None else None
        if found["count"] is None:
            sizes = f"parameter {found['place']} of sizes [{found['sizes']}]"
            return {view.rank: sizes}, place
        ends = (("rank", "count"), ("other", "theirs"))
        return {int(found[rank]): f"{found[count]} parameters" for rank, count in ends}, place
    return None
