"""Tables on a terminal, as Markdown, and as a page that stands alone."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hanglab.harness.evaluation.reliability import Bin
from hanglab.harness.evaluation.tables import ReportTable

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 80rem; padding: 0 1rem }
table { border-collapse: collapse; margin: .5rem 0 1.5rem; display: block; overflow-x: auto }
th, td { border: 1px solid #ccc; padding: .2rem .5rem; text-align: left; vertical-align: top }
th { background: #f2f2f2 } .number { text-align: right } .note { color: #555 }
"""
#: Side of the reliability diagram, in pixels.
_SIDE = 260


def print_tables(console: Console, tables: Iterable[ReportTable]) -> None:
    for one in tables:
        table = Table(
            title=one.title,
            title_justify="left",
            title_style="bold",
            caption=one.note or None,
            caption_justify="left",
            box=box.SIMPLE_HEAD,
            pad_edge=False,
            show_header=any(one.columns),
        )
        for number, column in enumerate(one.columns):
            aligned = "right" if number in one.numbers else "left"
            table.add_column(Text(column), justify=aligned, overflow="fold")  # type: ignore[arg-type]
        for row in one.rows:
            table.add_row(*map(Text, row))
        console.print(table)


def to_markdown(title: str, tables: Iterable[ReportTable]) -> str:
    parts = [f"# {title}"]
    for one in tables:
        rule = ("---:" if number in one.numbers else "---" for number in range(len(one.columns)))
        lines = [_markdown_row(one.columns), f"|{'|'.join(rule)}|", *map(_markdown_row, one.rows)]
        parts += [f"## {one.title}", "\n".join(lines), *([one.note] if one.note else [])]
    return "\n\n".join(parts) + "\n"


def _markdown_row(cells: Sequence[str]) -> str:
    escaped = (cell.replace("\\", "\\\\").replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(' '.join(cell.split()) for cell in escaped)} |"


def to_page(title: str, tables: Iterable[ReportTable], bins: Sequence[Bin] = ()) -> str:
    """An HTML page that needs no other file."""
    parts = [
        "<!doctype html>",
        f'<html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title>',
        f"<style>{_STYLE}</style><h1>{html.escape(title)}</h1>",
    ]
    if bins:
        parts += ["<h2>Reliability</h2>", _diagram(bins)]
    for one in tables:
        parts += [f"<h2>{html.escape(one.title)}</h2>", _html_table(one)]
        if one.note:
            parts.append(f'<p class="note">{html.escape(one.note)}</p>')
    return "\n".join([*parts, "</html>"]) + "\n"


def _html_table(one: ReportTable) -> str:
    def row(cells: Sequence[str], tag: str) -> str:
        marked = (
            f"<{tag}{' class=number' if number in one.numbers else ''}>{html.escape(cell)}</{tag}>"
            for number, cell in enumerate(cells)
        )
        return f"<tr>{''.join(marked)}</tr>"

    head = row(one.columns, "th") if any(one.columns) else ""
    return f"<table>{head}{''.join(row(cells, 'td') for cells in one.rows)}</table>"


def _diagram(bins: Sequence[Bin]) -> str:
    """Probability given, to the right, against the share that was right; circles by number."""
    largest = max(one.count for one in bins)
    circles = "".join(
        f'<circle cx="{_SIDE * one.predicted:.1f}" cy="{_SIDE * (1 - one.right):.1f}" '
        f'r="{3 + 9 * (one.count / largest) ** 0.5:.1f}" fill="#2a6fbb" fill-opacity="0.6">'
        f"<title>given {one.predicted:.2f}, right {one.right:.2f}, {one.count} verdicts</title>"
        "</circle>"
        for one in bins
    )
    return (
        f'<svg viewBox="-14 -14 {_SIDE + 28} {_SIDE + 28}" width="{_SIDE + 28}" role="img" '
        f'aria-label="Reliability diagram"><rect width="{_SIDE}" height="{_SIDE}" fill="none" '
        f'stroke="#999"/><line x1="0" y1="{_SIDE}" x2="{_SIDE}" y2="0" stroke="#999" '
        f'stroke-dasharray="4"/>{circles}</svg><p class="note">To the right the probability that '
        "was given, upwards the share that was right; the dashed line is perfect.</p>"
    )
