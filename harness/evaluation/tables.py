"""The tables of an evaluation, as text, for whatever they are shown on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from hanglab.harness.evaluation.evaluation import Evaluation, PeerMeasures
from hanglab.harness.evaluation.measures import CauseMeasures, Measures, Rate
from hanglab.harness.evaluation.paired import Comparison

#: Cases listed on a terminal and in Markdown; the page and the JSON have all.
SHOWN_CASES = 40


@dataclass(frozen=True)
class ReportTable:
    """A table.  ``numbers`` are the columns that are aligned to the right."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    numbers: frozenset[int] = field(default_factory=frozenset)


def tables_of(found: Evaluation, *, everything: bool = False) -> list[ReportTable]:
    """All tables that have a row; of long lists only the beginning unless ``everything``."""
    tables = [
        _by_cause(found.measures),
        _confusion(found.measures),
        _reliability(found.measures),
        *_comparison(found.comparison, everything),
        *(_peer(peer) for peer in found.peers),
        _accusations(found, everything),
        _failed(found),
        _broken(found, everything),
        _overall(found),
    ]
    return [table for table in tables if table.rows]


def share(rate: Rate) -> str:
    """A share in percent, such as ``95 %``, or ``-`` of nothing."""
    if rate.share is None:
        return "-"
    # Rounded, 199 of 200 must not look like all.
    percent = f"{100 * rate.share:.0f}"
    if percent in ("0", "100") and 0 < rate.share < 1:
        percent = f"{100 * rate.share:.1f}"
    return f"{percent} %"


def with_interval(rate: Rate) -> str:
    """Share with its interval, as in ``95 % (88-98)``, of ``of`` trials."""
    if rate.share is None:
        return "-"
    return f"{share(rate)} ({100 * rate.low:.0f}-{100 * rate.high:.0f})"


def _counted(rate: Rate) -> str:
    return f"{with_interval(rate)}, {rate.count} of {rate.of}" if rate.of else "-"


def _by_cause(measures: Measures) -> ReportTable:
    columns = (
        "truth",
        "Cases",
        "recall (95 %)",
        "precision (95 %)",
        "cause and ranks",
        "innocent",
        "inconclusive",
        "line",
        "Brier",
        "ms",
    )
    return ReportTable(
        "By cause",
        columns,
        [_cause_row(one) for one in measures.by_cause],
        note="recall and precision: of the cause alone. cause and ranks: Cases in which the "
        "culprits are right too. innocent: Cases in which a rank is accused that did nothing.",
        numbers=frozenset(range(1, len(columns))),
    )


def _cause_row(one: CauseMeasures) -> list[str]:
    return [
        one.cause,
        str(one.cases),
        with_interval(one.recall),
        with_interval(one.precision),
        share(one.right),
        str(one.innocent),
        share(one.inconclusive),
        f"{one.line.count}/{one.line.of}" if one.line.of else "-",
        f"{one.brier:.3f}" if one.brier is not None else "-",
        f"{1000 * one.seconds:.0f}" if one.cases else "-",
    ]


def _confusion(measures: Measures) -> ReportTable:
    rows = []
    for truth, cells in groupby(measures.confusion, key=lambda cell: cell.truth):
        others = [f"{cell.said} {cell.count}" for cell in cells if cell.said != truth]
        if others:
            rows.append([truth, ", ".join(others)])
    return ReportTable("Taken for something else", ("truth", "said, and how often"), rows)


def confusion_matrix(measures: Measures) -> ReportTable:
    """The whole matrix, a row for each truth and a column for each word that was said."""
    truths = list(dict.fromkeys(cell.truth for cell in measures.confusion))
    counts = {(cell.truth, cell.said): cell.count for cell in measures.confusion}
    words = truths + sorted({cell.said for cell in measures.confusion} - set(truths))
    return ReportTable(
        "Confusion matrix",
        ("truth", *words),
        [[truth, *(str(counts.get((truth, word), "")) for word in words)] for truth in truths],
        numbers=frozenset(range(1, len(words) + 1)),
    )


def _reliability(measures: Measures) -> ReportTable:
    return ReportTable(
        "Calibration",
        ("probability given", "share that was right", "verdicts"),
        [
            [f"{one.predicted:.2f}", f"{one.right:.2f}", str(one.count)]
            for one in measures.reliability
        ],
        numbers=frozenset((0, 1, 2)),
    )


def _comparison(found: Comparison | None, everything: bool) -> list[ReportTable]:
    if found is None:
        return []
    order = {"worse": 0, "better": 1, "other": 2}
    changes = sorted(found.changes, key=lambda one: (order[one.direction], one.name))
    rows = [[one.name, one.truth, one.before, one.after, one.direction] for one in changes]
    sums = [
        ["Cases that both have", str(found.cases)],
        ["right only " + found.after, str(found.gained)],
        ["right only " + found.before, str(found.lost)],
        [
            "difference of the shares that are right",
            f"{100 * found.difference:+.1f} points "
            f"(95 %: {100 * found.low:+.1f} to {100 * found.high:+.1f})",
        ],
        ["probability of so uneven a change by chance (McNemar)", f"{found.p_value:.3g}"],
        [
            "Cases with an innocent accused",
            f"{found.innocent_before} before, {found.innocent_after} now",
        ],
    ]
    return [
        ReportTable(
            "What changed, Case by Case",
            ("Case", "truth", found.before, found.after, ""),
            *_some(rows, everything),
        ),
        ReportTable(f"{found.after}, against {found.before}", ("", ""), sums),
    ]


def _some(rows: list[list[str]], everything: bool) -> tuple[list[list[str]], str]:
    """The rows to show, and what is said of the others."""
    if everything or len(rows) <= SHOWN_CASES:
        return rows, ""
    return rows[:SHOWN_CASES], f"and {len(rows) - SHOWN_CASES} more; --json and --html have all"


def _peer(one: PeerMeasures) -> ReportTable:
    columns = (
        "of what the peer can read",
        "Cases",
        "cause and ranks (95 %)",
        "recall",
        "precision",
        "innocent",
        "false alarms",
        "inconclusive",
        "crashes",
        "ms",
    )
    rows = [
        [
            name,
            str(one.readable),
            with_interval(measures.right),
            share(measures.recall),
            share(measures.precision),
            share(measures.innocent),
            share(measures.false_alarms),
            share(measures.inconclusive),
            str(measures.crashes),
            f"{1000 * measures.mean_s:.0f}",
        ]
        for name, measures in ((one.peer, one.peer_measures), ("hanglab", one.subject_measures))
    ]
    return ReportTable(
        f"Beside {one.peer}",
        columns,
        rows,
        note=f"{one.peer} can read {one.readable} of {one.labelled} Cases.",
        numbers=frozenset(range(1, len(columns))),
    )


def _accusations(found: Evaluation, everything: bool) -> ReportTable:
    rows = []
    for case in found.cases:
        answer, result = case.scored("hanglab")
        if answer.crash is not None:
            rows.append([case.name, result.truth if result else "unknown", answer.crash])
        elif result is not None and result.innocents:
            ranks = ", ".join(map(str, result.innocents))
            rows.append([case.name, result.truth, f"{answer.label}, innocent: rank {ranks}"])
    return ReportTable(
        "Innocents accused, and crashes", ("Case", "truth", "said"), *_some(rows, everything)
    )


def _failed(found: Evaluation) -> ReportTable:
    rows = [[name, str(times), why] for name, (times, why) in found.failed_heuristics.items()]
    return ReportTable("Heuristics that were not believed", ("heuristic", "Cases", "why"), rows)


def _broken(found: Evaluation, everything: bool) -> ReportTable:
    rows = [[name, reason] for name, reason in sorted(found.broken.items())]
    return ReportTable("Cases that could not be judged", ("Case", "why"), *_some(rows, everything))


def _overall(found: Evaluation) -> ReportTable:
    measures = found.measures
    rows: Iterable[tuple[str, str]] = (
        ("judged", _told_cases(found)),
        ("heuristics", found.heuristics),
        ("right (status, cause, ranks)", _counted(measures.right)),
        ("recall", _counted(measures.recall)),
        ("precision", _counted(measures.precision)),
        ("an innocent accused", _counted(measures.innocent)),
        ("false alarms on sound jobs", _counted(measures.false_alarms)),
        (
            "candidates",
            f"{_counted(measures.candidates)}; {measures.candidate_ranks} ranks too many",
        ),
        ("inconclusive", _counted(measures.inconclusive)),
        ("line exact", _counted(measures.line)),
        ("Brier score", f"{measures.brier:.4f}" if measures.brier is not None else "-"),
        ("crashes", str(measures.crashes)),
        (
            "time for a Case",
            f"{1000 * measures.mean_s:.0f} ms; median {1000 * measures.median_s:.0f}, "
            f"longest {1000 * measures.longest_s:.0f}; {found.seconds:.1f} s for all",
        ),
    )
    return ReportTable(
        "Over all",
        ("", ""),
        [list(row) for row in rows],
        note="recall: faulty Cases with status, cause and ranks right. precision: of the verdicts "
        "that name a fault and more than candidates, those right. (95 % intervals: Wilson.)",
    )


def _told_cases(found: Evaluation) -> str:
    measures = found.measures
    words = f"{measures.cases} Cases of {', '.join(found.sources)}"
    unknown = measures.cases - measures.labelled
    if unknown:
        words += f"; of {unknown} no truth is known"
    if found.interrupted:
        words += f"; interrupted, {found.planned - measures.cases - len(found.broken)} left"
    return words
