"""Ranks that torch itself found to call something else than their peers, by what it says.

With ``TORCH_DISTRIBUTED_DEBUG=DETAIL`` ranks compare their next collective before they make it, and
each raises what it has and what the first that differs has (ProcessGroupWrapper.cpp).  So each
names two, and together they name all.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from hanglab.analyzer.facts.case_facts import CaseFacts, RankView
from hanglab.analyzer.facts.error_texts import MISMATCH_FOUND
from hanglab.analyzer.logs.tracebacks import printed_tracebacks
from hanglab.analyzer.proposal import Proposal, detector, propose
from hanglab.analyzer.strengths import CONFIRMED, TIED
from hanglab.analyzer.verdict import Cause, Evidence
from hanglab.analyzer.wording import UNTOLD, name_line, name_ranks
from hanglab.recorder.case.records import StackFrame

_FINGERPRINT = re.compile(
    r"Rank (?P<rank>\d+) is running (?:collective|inconsistent collective)?:? ?"
    r"CollectiveFingerPrint\((?:SequenceNumber=(?P<number>\d+), )?OpType=(?P<op>\w+)"
    r"(?:, TensorShape=\[(?P<shape>[^\]]*)\])?(?:, TensorDtypes=(?P<dtypes>[^,)]*))?"
)


class _Fingerprint(NamedTuple):
    op: str
    shape: str
    dtypes: str

    @property
    def words(self) -> str:
        return f"{self.op.lower()} of [{self.shape}] {self.dtypes}".rstrip()


@detector
def reported_mismatches(facts: CaseFacts) -> Iterator[Proposal]:
    """Those who differ from most; all who differ where nothing tells which of them is wrong."""
    if facts.graph.divergences:
        return  # Buffers tell as much, and the lines.
    said = {rank: one for rank, view in facts.ranks.items() if (one := _said(view))}
    calls: dict[int, _Fingerprint] = {}
    for rank, (text, _) in said.items():
        found = _fingerprints(text)
        # Ranks count within the group: only one that holds all in order is told by that.
        if rank not in found or any(calls.setdefault(r, one) != one for r, one in found.items()):
            return
    if len({*calls.values()}) < 2 or not calls.keys() <= facts.ranks.keys():
        return
    (usual, votes), *_ = Counter(calls.values()).most_common(1)
    odd = sorted(rank for rank, call in calls.items() if call != usual)
    # Who said nothing may have called what the few did.
    silent = {*facts.ranks, *facts.inputs.missing_ranks} - calls.keys()
    told = 2 * votes > len(calls) + len(silent)
    culprits = odd if told else sorted(calls)
    first = culprits[0]
    frame = said[first][1] if first in said else None
    location = facts.ranks[first].location(frame) if frame is not None else None
    cause = _cause(calls, usual)
    why = "" if told else f", {UNTOLD}"
    yield propose(
        facts,
        cause,
        culprits,
        failure_on_record=True,
        confidence=CONFIRMED if told else TIED,
        summary=f"{name_ranks(culprits).capitalize()} came to another collective than "
        f"{'most' if told else 'each other'}{name_line(location)}: "
        f"{'; '.join(f'rank {rank} to {calls[rank].words}' for rank in culprits[:4])}"
        f"{f', the others to {usual.words}' if told else ''}{why}.",
        evidence=[
            Evidence("exceptions", rank, f"called {calls[rank].words}, as torch compared it")
            for rank in sorted(calls)
        ],
        location=location,
    )


def _said(view: RankView) -> tuple[str, StackFrame | None] | None:
    """The text in which torch told a rank of the mismatch, and the line at which it did."""
    raised = [(one.message, list(one.frames)) for one in view.exceptions]
    printed = [(one.message, list(one.frames)) for one in printed_tracebacks(view.stderr)]
    for text, frames in (*raised, *printed):
        if MISMATCH_FOUND.pattern.search(text):
            return text, view.code.innermost_user(frames)
    return None


def _fingerprints(text: str) -> dict[int, _Fingerprint]:
    return {
        int(one["rank"]): _Fingerprint(one["op"], one["shape"] or "", one["dtypes"] or "")
        for one in _FINGERPRINT.finditer(text)
    }


def _cause(calls: Mapping[int, _Fingerprint], usual: _Fingerprint) -> Cause:
    others = [call for call in calls.values() if call != usual]
    if any(call.op != usual.op for call in others):
        return Cause.COLLECTIVE_MISMATCH
    if any(call.shape != usual.shape for call in others):
        return Cause.SIZE_MISMATCH
    return Cause.DTYPE_MISMATCH
