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
    from hanglab.analyzer.catalogue import Cause
    from hanglab.harness.report.panel import make_console

    known = None
    if cause is not None:
        try:
            known = Cause(cause.strip().lower().replace("-", "_"))
        except ValueError:
            pass
    if as_json and (known is not None or cause is None):
        import msgspec

        content = _content(known) if known is not None else [_content(one) for one in Cause]
        print(msgspec.json.format(msgspec.json.encode(content)).decode())
        return 0
    if known is not None:
        _show(make_console(), known)
        return 0
    if cause is not None:
        raise _unknown(cause)
    _list(make_console())
    return 0


def _unknown(name: str) -> Exception:
    from difflib import get_close_matches

    from hanglab.analyzer.catalogue import Cause
    from hanglab.harness.errors import UsageError
    from hanglab.harness.report.explanation.plain_text import shown

    causes = [one.value for one in Cause]
    near = get_close_matches(name, causes, n=3)
    guess = f"Did you mean {' or '.join(near)}? " if near else ""
    return UsageError(
        f"there is no cause named {shown(name, 80)}.", f"{guess}Causes: {', '.join(causes)}."
    )


def _content(cause: Cause) -> dict[str, object]:
    from hanglab.harness.report.explanation.cause_texts import text_of

    text = text_of(cause.value)
    return {
        "cause": cause.value,
        "category": cause.category.value,
        "status": cause.status.value,
        "what": text.what,
        "proof": text.proof,
        "mistaken_for": dict(text.mistaken_for),
        "advice": cause.advice,
        "references": [_address(one) for one in text.references],
    }


def _address(reference: str) -> str:
    """An address that a browser opens, for one in the short form of a thread or a paper."""
    if reference.startswith("arXiv:"):
        return f"https://arxiv.org/abs/{reference.removeprefix('arXiv:')}"
    repository, hash_, number = reference.partition("#")
    if hash_ and number.isdigit() and "://" not in reference:
        return f"https://github.com/{repository}/issues/{number}"
    return reference


def _show(console: Console, cause: Cause) -> None:
    from rich.padding import Padding
    from rich.text import Text

    from hanglab.harness.report.explanation.cause_texts import text_of

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
    part("References", [_address(one) for one in text.references])


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
