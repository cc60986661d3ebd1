"""From a verdict and its evidence to an explanation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hanglab.analyzer.decision import Fallen
from hanglab.analyzer.engine import Examination
from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.plain_text import shown
from hanglab.analyzer.verdict import Finding, Verdict
from hanglab.harness.report.explanation.cause_texts import text_of
from hanglab.harness.report.explanation.commands import commands
from hanglab.harness.report.explanation.exclusions import alternatives, exclusions
from hanglab.harness.report.explanation.headlines import headline, is_undecided, words_of
from hanglab.harness.report.explanation.parts import CallFrame, Explanation, Mend, OtherJob
from hanglab.harness.report.explanation.places import places
from hanglab.harness.report.explanation.reasons import chain, reasons
from hanglab.harness.report.explanation.subject import Subject, short

#: Processes that are listed: culprits first.
_MOST_PROCESSES = 8


def explain(
    verdict: Verdict,
    facts: CaseFacts | None = None,
    fallen: Sequence[Fallen] = (),
    undecided: bool = False,
    folder: Path | None = None,
    ending: bool = False,
    beside: Sequence[Verdict] = (),
) -> Explanation:
    """A verdict in words and parts.

    ``facts``, ``fallen``, ``undecided`` and ``beside`` are those of :class:`engine.Examination`;
    without them the verdict alone speaks.  ``folder`` is the one that was examined, as commands
    should name it, and ``ending`` says that the job's processes are being ended.
    """
    subject = Subject(verdict, facts, fallen, undecided, ending, folder)
    why, more = reasons(subject)
    return Explanation(
        status=verdict.status.value,
        cause=verdict.cause.value if verdict.cause is not None else None,
        confidence=verdict.confidence,
        headline=headline(subject),
        culprits=subject.culprits,
        waiting=subject.waiting,
        ranks=subject.world_size,
        waited_s=subject.waited_s,
        processes=tuple(subject.process(rank) for rank in subject.culprits[:_MOST_PROCESSES]),
        where=places(subject),
        why=why,
        more_reasons=more,
        excluded=exclusions(subject),
        alternatives=alternatives(subject),
        do_now=commands(subject),
        mend=_mend(subject),
        would_decide=tuple(shown(one) for one in verdict.inputs.would_decide),
        chain=chain(subject),
        further=tuple(_further(subject, one) for one in verdict.findings[1:]),
        beside=tuple(_other_job(one) for one in beside),
        unusable=tuple((shown(one.file), shown(one.reason)) for one in verdict.inputs.unusable),
        summary=shown(verdict.summary, 4000),
        values=_values(verdict),
    )


def explain_examined(
    examined: Examination, folder: Path | None = None, *, ending: bool = False
) -> Explanation:
    """The explanation of what :func:`engine.examine` found in ``folder``."""
    return explain(
        examined.verdict,
        examined.facts,
        examined.fallen,
        examined.undecided,
        folder,
        ending,
        examined.beside,
    )


def _mend(subject: Subject) -> Mend | None:
    """The change that ends it, or the analyzer's own advice where that says something else."""
    verdict, cause = subject.verdict, subject.verdict.cause
    if not verdict.advice:
        return None
    place, decision = verdict.location, verdict.decision
    frame = CallFrame(shown(place.file), place.line, shown(place.function)) if place else None
    own = cause is None or verdict.advice not in (cause.advice, cause.advice_without_place)
    own = own or is_undecided(subject)
    text = None if own or cause is None else words_of(subject).filled(text_of(cause.value).mend)
    text = text or shown(verdict.advice)
    if decision is not None:
        frame = CallFrame(shown(decision.file), decision.line, shown(decision.function))
        line = f"{short(decision.file)}:{decision.line}"
        text += f" The ranks part at {line}: {shown(decision.text, 200)}"
    return Mend(text, frame)


def _further(subject: Subject, finding: Finding) -> str:
    """The first sentence of another finding."""
    fields = {name: getattr(finding, name) for name in Finding.__struct_fields__}
    return headline(Subject(Verdict(**fields, inputs=subject.verdict.inputs), subject.facts))


def _other_job(verdict: Verdict) -> OtherJob:
    inputs = verdict.inputs
    told = headline(Subject(verdict))
    return OtherJob(shown(inputs.world or "?"), inputs.ranks, verdict.status.value, told)


def _values(verdict: Verdict) -> tuple[str, ...]:
    if verdict.decision is None:
        return ()
    told = [
        f"{'rank' if len(way.ranks) == 1 else 'ranks'} {', '.join(map(str, way.ranks))} {way.way}"
        for way in verdict.decision.ways
        if way.ranks
    ]
    told += [f"{one.name} = {one.value} on rank {one.rank}" for one in verdict.decision.values]
    return tuple(shown(one) for one in told)
