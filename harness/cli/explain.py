"""``hanglab explain``: a cause, how it is proved, and what it is often taken for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from hanglab.analyzer.catalogue import Cause


def explain(
    cause: Annotated[
        str | None, typer.Argument(metavar="[CAUSE]", help="A cause; without one, all are listed.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Say what a cause is, how it is proved, and what it is often taken for."""
    from hanglab.harness.report.panel import make_console

    known = None
    if cause is not None:
        from hanglab.harness.report.explanation.described_causes import known_cause

        known = known_cause(cause)
    if as_json:
        import msgspec

        from hanglab.analyzer.catalogue import Cause
        from hanglab.harness.report.explanation.described_causes import described

        content = described(known) if known is not None else [described(one) for one in Cause]
        print(msgspec.json.format(msgspec.json.encode(content)).decode())
    elif known is not None:
        _show(make_console(), known)
    else:
        _list(make_console())
    return 0


def _show(console: Console, cause: Cause) -> None:
    from rich.padding import Padding
    from rich.text import Text

    from hanglab.harness.report.explanation.cause_texts import text_of
    from hanglab.harness.report.explanation.described_causes import address

    text = text_of(cause.value)
    title = f"{cause.value} ({cause.category.value}; a job with it is {cause.status.value})"
    console.print(Text(title, style="bold"))

    def part(name: str, lines: list[str]) -> None:
        if any(lines):
            console.print(Text(f"\n{name}", style="bold"))
            for line in lines:
                console.print(Padding(Text(line), (0, 0, 0, 2)))

    part("What it is", [text.what or "It is a cause of another distribution than hanglab."])
    part("How it is proved", [text.proof])
    part("Often mistaken for", [f"{name}: {how}." for name, how in text.mistaken_for.items()])
    part("What to do", [cause.advice])
    part("References", [address(one) for one in text.references])


def _list(console: Console) -> None:
    from rich.table import Table
    from rich.text import Text

    from hanglab.analyzer.catalogue import Cause
    from hanglab.harness.report.explanation.cause_texts import text_of

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("category", "cause", "what it is"):
        table.add_column(column, no_wrap=column != "what it is")
    before = ""
    for cause in Cause:
        category = cause.category.value
        what = text_of(cause.value).what.split(". ")[0].removesuffix(".")
        table.add_row(category if category != before else "", Text(cause.value), Text(what))
        before = category
    console.print(table)
