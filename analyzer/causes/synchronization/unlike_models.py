"""Ranks whose model has other parameters than their peers', as DistributedDataParallel compares it.

It compares the number of parameters of each two ranks, and then each parameter's sizes with those
of process 0 (torch/csrc/distributed/c10d/reducer.cpp, verify_params_across_processes): each that
finds a difference raises, whoever is odd.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True)
class _Said:
    """An error of one rank: its number among those compared, models by number, and the place."""

    number: int
    models: dict[int, str]
    counted: bool
    place: Location | None


@detector
def unlike_models(facts: CaseFacts) -> Iterator[Proposal]:
    """``size_mismatch`` of those whose model differs from most; of all where nothing tells.

    Numbers are those within the group whose ranks compare their models: one in which all that say
    something have the numbers that they say.  Where several groups fit, they have to agree.
    """
    said = {rank: one for rank, view in facts.ranks.items() if (one := _said(view)) is not None}
    if not said:
        return
    groups = [group.members for group in facts.graph.groups] or [tuple(sorted(facts.ranks))]
    fitting = [
        members
        for members in dict.fromkeys(groups)
        if all(_has_number(members, rank, one) for rank, one in said.items())
    ]
    known = [(len(members), _models(facts, members, said)) for members in fitting]
    told = [models for _, models in known if models is not None]
    odd = {_unlike_most(models, size) for size, models in known if models is not None}
    sure = len(odd) == 1 and odd != {()}
    culprits = sorted(odd.pop() if sure else {rank for models in told for rank in models})
    if not culprits:
        return
    models = told[0]
    others = Counter(models[rank] for rank in models if rank not in culprits).most_common(1)
    places = [said[rank].place for rank in [*culprits, *said] if rank in said]
    location = next((one for one in places if one is not None), None)
    yield propose(
        facts,
        Cause.SIZE_MISMATCH,
        culprits,
        failure_on_record=True,
        confidence=CONFIRMED if sure else TIED,
        summary=f"{name_ranks(culprits).capitalize()} gave DistributedDataParallel another model "
        f"than {'most' if sure else 'each other'}{name_line(location)}: "
        f"{'; '.join(f'rank {r} has {models[r]}' for r in culprits[:4] if r in models)}"
        f"{f', the others {others[0][0]}' if sure and others else UNTOLD}.",
        evidence=[Evidence("exceptions", rank, f"has {models[rank]}") for rank in sorted(models)],
        location=location,
        advice=_ADVICE,
    )


def _has_number(members: Sequence[int], rank: int, said: _Said) -> bool:
    return said.number < len(members) and members[said.number] == rank


def _models(
    facts: CaseFacts, members: Sequence[int], said: Mapping[int, _Said]
) -> dict[int, str] | None:
    """By rank of a group what it has, as far as is known; None where that contradicts itself."""
    models: dict[int, str] = {}
    for one in said.values():
        for number, model in one.models.items():
            if number >= len(members) or models.setdefault(members[number], model) != model:
                return None
    if not any(one.counted for one in said.values()):
        # Whoever differs from process 0 in sizes raises; the others have gone on.
        models |= {r: _LIKE_FIRST for r in members if r not in models and r in facts.ranks}
    return models if len(set(models.values())) > 1 else None


def _unlike_most(models: Mapping[int, str], size: int) -> tuple[int, ...]:
    """Ranks that differ from more than half of a group of that size; () without such a majority."""
    (usual, votes), *_ = Counter(models.values()).most_common(1)
    if 2 * votes <= size:
        return ()
    return tuple(sorted(rank for rank, model in models.items() if model != usual))


def _said(view: RankView) -> _Said | None:
    """An error of torch's that tells a rank of models; None where there is none."""
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
            number = int(found["own"])
            return _Said(number, {number: sizes}, False, place)
        ends = (("rank", "count"), ("other", "theirs"))
        models = {int(found[rank]): f"{found[count]} parameters" for rank, count in ends}
        return _Said(int(found["rank"]), models, True, place)
    return None
