"""A verdict as people see it, and the console that it is printed on."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from hanglab.analyzer.verdict import Status, Verdict
from hanglab.harness.jobs.outcome import describe

#: Width where the output is no terminal, so that tables in logs keep their columns.
PLAIN_WIDTH = 150
#: Files that were of no use, as many as leave the evidence on the same screen.
SHOWN_FILES = 8

_STATUS_STYLE = {
    Status.HUNG: "red",
    Status.FAILED: "red",
    Status.CORRUPT: "red",
    Status.SLOW: "yellow",
    Status.HEALTHY: "green",
    Status.INCONCLUSIVE: "yellow",
}


def make_console(*, errors: bool = False) -> Console:
    console = Console(stderr=errors, highlight=False)
    if not console.is_terminal:
        console = Console(stderr=errors, highlight=False, width=PLAIN_WIDTH)
    return console


def verdict_panel(verdict: Verdict) -> Panel:
    """A verdict for the person on call."""
    style = _STATUS_STYLE[verdict.status]
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bold")
    facts.add_column(overflow="fold")

    def fact(name: str, value: str | Text) -> None:
        if value:
            facts.add_row(name, value if isinstance(value, Text) else Text(value))

    fact("status", Text(verdict.status.value, style=f"bold {style}"))
    if verdict.cause is not None:
        fact("cause", f"{verdict.cause.value} (confidence {verdict.confidence:.2f})")
    if verdict.culprits:
        fact("culprits", rank_list(verdict.culprits))
    if verdict.victims:
        fact("victims", rank_list(verdict.victims))
    call = verdict.collective
    if call is not None:
        number = f" number {call.seq}" if call.seq is not None else ""
        fact("operation", f"{call.op}{number} of group {call.group or call.group_id}")
    place = verdict.location
    if place is not None:
        fact("location", f"{place.file}:{place.line} in {place.function}, rank {place.rank}")
    decision = verdict.decision
    if decision is not None:
        fact("decision", f"{decision.file}:{decision.line}: {decision.text}")
        for way in decision.ways:
            if way.ranks:
                fact(
                    "",
                    f"{'ranks' if len(way.ranks) > 1 else 'rank'} {rank_list(way.ranks)} {way.way}",
                )
        for one in decision.values:
            fact("", f"{one.name} = {one.value} on rank {one.rank}")
    effect = verdict.effect
    if effect is not None:
        where = f" in {effect.section}" if effect.section else ""
        fact(
            "effect", f"{effect.ms_per_step:.1f} ms a step{where}, {effect.share_of_step:.0%} of it"
        )
    fact("advice", verdict.advice)
    for alternative in verdict.alternatives:
        ranks = rank_list(alternative.culprits)
        fact("or else", f"{alternative.cause.value} by {ranks} ({alternative.confidence:.2f})")
    for further in verdict.findings[1:]:
        fact("also", f"{describe(further)}: {further.summary}")
    for wanted in verdict.inputs.would_decide:
        fact("would decide", wanted)
    for unusable in verdict.inputs.unusable[:SHOWN_FILES]:
        fact("not usable", f"{unusable.file}: {unusable.reason}")
    more = len(verdict.inputs.unusable) - SHOWN_FILES
    if more > 0:
        fact("", f"and {more} more; --json lists them")
    parts: list[Text | Table] = [Text(verdict.summary or verdict.status.value), Text(), facts]
    if verdict.evidence:
        seen = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
        seen.add_column("evidence")
        seen.add_column("rank", justify="right")
        seen.add_column("", overflow="fold")
        for item in verdict.evidence:
            rank = "" if item.rank is None else str(item.rank)
            seen.add_row(item.source, rank, Text(item.detail))
        parts += [Text(), seen]
    return Panel(Group(*parts), title="verdict", title_align="left", border_style=style)


def rank_list(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks)) if ranks else "-"
