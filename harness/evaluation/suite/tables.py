"""The evaluation of a suite, and its tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from hanglab.harness.evaluation.suite.measures import ScriptScore, SuiteMeasures, measure_suite
from hanglab.harness.evaluation.tables import ReportTable, share, with_interval
from hanglab.recorder.case.backends import backend_of

SCHEMA: Literal["hanglab.suite_evaluation/1"] = "hanglab.suite_evaluation/1"
_OBSERVABLES = ("hangs", "fails", "silently_wrong", "fine")


class SuiteEvaluation(msgspec.Struct, kw_only=True):
    """A suite's scores and measures; its JSON form is ``hanglab.suite_evaluation/1``."""

    schema: Literal["hanglab.suite_evaluation/1"] = SCHEMA
    folder: str
    #: Backend that its scripts were run on, unless they name another themselves.
    backend: str
    repeat: int
    interrupted: bool
    scripts: list[ScriptScore]
    measures: SuiteMeasures
    by_label: dict[str, SuiteMeasures]
    by_observable: dict[str, SuiteMeasures]
    #: Classes that are no cause and no category, and of which the suite does not say more.
    unknown_classes: list[str]
    seconds: float


def evaluate_suite(
    scores: list[ScriptScore],
    *,
    folder: str,
    backend: str,
    repeat: int,
    interrupted: bool,
    unknown_classes: list[str],
    seconds: float,
) -> SuiteEvaluation:
    def of(key: str, values: Iterable[str]) -> dict[str, SuiteMeasures]:
        groups = {v: [one for one in scores if getattr(one.script, key) == v] for v in values}
        return {value: measure_suite(group) for value, group in groups.items() if group}

    return SuiteEvaluation(
        folder=folder,
        backend=backend,
        repeat=repeat,
        interrupted=interrupted,
        scripts=scores,
        measures=measure_suite(scores),
        by_label=of("label", ("error", "ok")),
        by_observable=of("observable", _OBSERVABLES),
        unknown_classes=unknown_classes,
        seconds=seconds,
    )


def tables_of_suite(found: SuiteEvaluation) -> list[ReportTable]:
    """All tables that have a row."""
    tables = [
        _scripts(found),
        _by("By label", found.by_label),
        _by("By what can be observed", found.by_observable),
        _unanswered(found),
        _overall(found),
    ]
    return [table for table in tables if table.rows]


def _scripts(found: SuiteEvaluation) -> ReportTable:
    """Scripts on which something is not as the label says."""
    rows = []
    for one in found.scripts:
        notes = _notes(one)
        if notes and one.answer is not None:
            label = " ".join(filter(None, (one.script.label, one.script.kind)))
            culprits = ", ".join(map(str, one.answer.culprits))
            said = f"{one.answer.label}{f' by {culprits}' if culprits else ''}"
            rows.append([one.script.file, label, one.script.observable, said, "; ".join(notes)])
    return ReportTable(
        "Not as labelled", ("script", "label", "observable", "said", "what differs"), rows
    )


def _notes(one: ScriptScore) -> list[str]:
    notes = []
    if one.said == "inconclusive":
        notes.append("inconclusive")
    elif one.said != one.script.label:
        notes.append("missed" if one.script.label == "error" else "false alarm")
    if one.class_right is False:
        notes.append("class")
    if one.culprits_right is False:
        notes.append("culprits")
    if one.line_right is False:
        notes.append("line")
    if one.innocents:
        notes.append(f"innocent: rank {', '.join(map(str, one.innocents))}")
    if one.noise:
        notes.append(f"{one.noise} findings more")
    if one.varies:
        notes.append("varies from run to run")
    if one.otherwise:
        seen = sorted({run.observed for run in one.runs if run.observed is not None})
        notes.append(f"was seen: {', '.join(seen)}")
    return notes


def _by(title: str, groups: dict[str, SuiteMeasures]) -> ReportTable:
    columns = (
        "",
        "scripts",
        "recall (95 %)",
        "specificity (95 %)",
        "inconclusive",
        "class",
        "culprits",
        "line",
        "innocent",
        "noise",
    )
    rows = [
        [
            name,
            str(one.scripts),
            with_interval(one.recall),
            with_interval(one.specificity),
            with_interval(one.inconclusive),
            share(one.class_agreement),
            share(one.culprits),
            share(one.line),
            str(one.innocent.count),
            str(one.noise),
        ]
        for name, one in groups.items()
    ]
    return ReportTable(title, columns, rows, numbers=frozenset(range(1, len(columns))))


def _unanswered(found: SuiteEvaluation) -> ReportTable:
    rows = []
    for one in found.scripts:
        problems = [run.problem for run in one.runs if run.problem]
        if problems or not (one.runs or found.interrupted):
            rows.append([one.script.file, problems[0] if problems else "was not run"])
    return ReportTable("Without an answer", ("script", "why"), rows)


def _overall(found: SuiteEvaluation) -> ReportTable:
    all_of = found.measures
    rows = [
        ["scripts", _told_scripts(found)],
        ["backend", _told_backend(found)],
        ["recall", with_interval(all_of.recall)],
        ["recall where it decided", with_interval(all_of.decided_recall)],
        ["precision", with_interval(all_of.precision)],
        ["specificity", with_interval(all_of.specificity)],
        ["F1", f"{all_of.f1:.3f}" if all_of.f1 is not None else "-"],
        ["inconclusive", with_interval(all_of.inconclusive)],
        ["class agreement", with_interval(all_of.class_agreement)],
        ["culprits exact", with_interval(all_of.culprits)],
        ["line exact", with_interval(all_of.line)],
        ["an innocent accused", with_interval(all_of.innocent)],
        ["noise", f"{all_of.noise} findings beside {all_of.right_findings} right ones"],
        ["nondeterminism", with_interval(all_of.nondeterminism)],
    ]
    if found.unknown_classes:
        rows.append(["classes not judged", ", ".join(found.unknown_classes)])
    return ReportTable(
        "Over all scripts",
        ("", ""),
        rows,
        note="recall: inconclusive verdicts are misses. specificity: of sound scripts with a "
        "verdict. (95 % intervals: Wilson.)",
    )


def _told_backend(found: SuiteEvaluation) -> str:
    runs = [run for one in found.scripts for run in one.runs if run.answer is not None]
    emulated = sum(run.emulated for run in runs)
    if not (emulated or backend_of(found.backend).emulated):
        return found.backend
    words = f"{found.backend}; the device was emulated on the CPU"
    if emulated < len(runs):
        words += f" in {emulated} of {len(runs)} runs: the others made no group on it"
    return words


def _told_scripts(found: SuiteEvaluation) -> str:
    answered = found.measures.scripts - found.measures.unanswered
    words = f"{answered} of {found.measures.scripts} judged, of {found.folder}"
    words += f"; {found.seconds:.1f} s"
    if found.repeat > 1:
        words += f"; {found.repeat} runs each, of which most decide"
    return words + ("; interrupted" if found.interrupted else "")
