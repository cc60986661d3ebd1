"""Judgements of mutants in figures: by operator, for the terminal, as JSON and as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal

import msgspec
from rich import box
from rich.table import Table

from hanglab.analyzer.engine import EMULATED
from hanglab.harness.mutation.judgement import Fate, MutantJudgement
from hanglab.recorder.case.backends import backend_of

SCHEMA: Final = "hanglab.mutation/1"


class Figures(msgspec.Struct, kw_only=True):
    """Counts of mutants of one operator, or of all."""

    operator: str
    mutants: int = 0
    #: The fault struck; of these the rest, less those that are silent.
    struck: int = 0
    silent: int = 0
    #: Judged: struck, and not silent.
    judged: int = 0
    found: int = 0
    right_cause: int = 0
    right_rank: int = 0
    right_cause_and_rank: int = 0
    #: Of those for which a line is expected.
    right_line: int = 0
    lines: int = 0
    #: Of those that hang or fail because a statement sent ranks two ways: that one is named.
    right_branch: int = 0
    wrong_branch: int = 0
    branches: int = 0
    innocents_accused: int = 0
    not_struck: int = 0
    errors: int = 0


class MutationReport(msgspec.Struct, kw_only=True):
    """All of one run; the content of ``report.json``."""

    schema: Literal["hanglab.mutation/1"] = SCHEMA
    script: str
    world_size: int
    #: Backend that the jobs ran on.
    backend: str
    seconds: float
    interrupted: bool
    total: Figures
    operators: list[Figures]
    mutants: list[MutantJudgement]


def count(operator: str, judgements: Iterable[MutantJudgement]) -> Figures:
    figures = Figures(operator=operator)
    for one in judgements:
        figures.mutants += 1
        figures.not_struck += one.fate is Fate.NOT_STRUCK
        figures.errors += one.fate is Fate.ERROR
        figures.innocents_accused += bool(one.accused)
        if one.fate in (Fate.NOT_STRUCK, Fate.ERROR):
            continue
        figures.struck += 1
        figures.silent += one.fate is Fate.SILENT
        if one.fate is Fate.SILENT:
            continue
        figures.judged += 1
        figures.found += one.detected
        figures.right_cause += one.cause_right
        figures.right_rank += one.rank_right
        figures.right_cause_and_rank += one.cause_right and one.rank_right
        figures.lines += one.line_right is not None
        figures.right_line += one.line_right is True
        figures.branches += one.branch_named is not None
        figures.right_branch += one.branch_right is True
        figures.wrong_branch += one.branch_named is True and not one.branch_right
    return figures


def count_by_operator(judgements: Sequence[MutantJudgement]) -> list[Figures]:
    names = sorted({one.operator for one in judgements})
    return [count(name, (one for one in judgements if one.operator == name)) for name in names]


def exit_code(judgements: Sequence[MutantJudgement]) -> int:
    """0 all found, 1 some missed or innocents accused, 2 nothing to judge, 4 errors of jobs."""
    fates = {one.fate for one in judgements}
    if Fate.ERROR in fates:
        return 4
    if Fate.MISSED in fates or any(one.accused for one in judgements):
        return 1
    return 0 if Fate.FOUND in fates else 2


_COLUMNS: Final = (
    *("mutants", "not struck", "struck", "silent", "found", "cause", "rank", "both", "line"),
    *("branch", "wrong branch", "accused", "errors"),
)


def _cells(figures: Figures) -> list[str]:
    return [
        str(figures.mutants),
        _or_dash(figures.not_struck),
        str(figures.struck),
        _or_dash(figures.silent),
        f"{figures.found}/{figures.judged}",
        f"{figures.right_cause}/{figures.judged}",
        f"{figures.right_rank}/{figures.judged}",
        f"{figures.right_cause_and_rank}/{figures.judged}",
        f"{figures.right_line}/{figures.lines}",
        f"{figures.right_branch}/{figures.branches}",
        _or_dash(figures.wrong_branch),
        _or_dash(figures.innocents_accused),
        _or_dash(figures.errors),
    ]


def _or_dash(number: int) -> str:
    return str(number) if number else "-"


def terminal_table(report: MutationReport) -> Table:
    """The figures in 80 columns: those that struck out of all, and right ones out of judged."""
    caption = "the device was emulated on the CPU" if _emulated(report) else None
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=0, caption=caption)
    table.add_column("operator", no_wrap=True)
    columns = ["struck", "silent", "found", "cause", "rank", "line", "accused"]
    for column in [*columns, "errors"] if report.total.errors else columns:
        table.add_column(column, justify="right", no_wrap=True)
    for figures in [*report.operators, report.total]:
        if figures is report.total:
            table.add_section()
        table.add_row(
            figures.operator,
            f"{figures.struck}/{figures.mutants}",
            _or_dash(figures.silent),
            f"{figures.found}/{figures.judged}",
            f"{figures.right_cause}/{figures.judged}",
            f"{figures.right_rank}/{figures.judged}",
            f"{figures.right_line}/{figures.lines}",
            _or_dash(figures.innocents_accused),
            *([_or_dash(figures.errors)] if report.total.errors else []),
        )
    return table


def _emulated(report: MutationReport) -> bool:
    return backend_of(report.backend).emulated


def markdown_table(rows: Iterable[Figures], first: str = "operator") -> str:
    lines = [f"| {first} | {' | '.join(_COLUMNS)} |", f"|---|{'---:|' * len(_COLUMNS)}"]
    lines += [f"| {figures.operator} | {' | '.join(_cells(figures))} |" for figures in rows]
    return "\n".join(lines)


def markdown(report: MutationReport) -> str:
    """The report as a page: figures by operator, then each miss."""
    lines = [
        f"# Mutants of {report.script}, {report.world_size} ranks on {report.backend}",
        "",
        markdown_table([*report.operators, report.total]),
        "",
        "Right are cause, rank and line of those that struck and were not silent; `both`: cause "
        "and rank. `line`: of those for which a line is expected; `branch`: the statement that "
        "parted the ranks, of those that one parted.",
    ]
    if _emulated(report):
        lines += ["", EMULATED]
    missed = [one for one in report.mutants if one.fate is Fate.MISSED or one.accused]
    if missed:
        lines += ["", "## Missed", "", "| mutant | what was done | expected | verdict | line |"]
        lines.append("|---|---|---|---|---|")
        lines += [_missed_row(one) for one in missed]
    return "\n".join(lines) + "\n"


def _missed_row(one: MutantJudgement) -> str:
    causes = " or ".join(cause.value for cause in one.expected_causes)
    ranks = ", ".join(map(str, one.expected_culprits))
    wrong = "" if one.line_right is not False else f", expected {_ranges(one.expected_lines)}"
    accused = f"; innocent: {', '.join(map(str, one.accused))}" if one.accused else ""
    return (
        f"| {one.mutant} | {one.summary} | {causes} by {ranks} | {one.verdict}{accused} | "
        f"{one.location or '-'}{wrong} |"
    )


def _ranges(lines: Sequence[int]) -> str:
    return ", ".join(map(str, lines))
