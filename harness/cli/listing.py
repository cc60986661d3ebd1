"""``hanglab list``: the scenarios that come with hanglab."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hanglab.harness.cli.backend_option import OptionalBackendName
from hanglab.harness.cli.packs import PACK_HELP
from hanglab.recorder.case.backends import DEFAULT_BACKEND

if TYPE_CHECKING:
    from hanglab.harness.scenarios.declaration import Scenario

#: Category whose scenarios make a suite where none is named: their faults are in their code.
_EXPORTED = "synchronization"


def list_scenarios(
    files: Annotated[
        list[str] | None,
        typer.Argument(help="Names, files or folders; all that come with hanglab without any."),
    ] = None,
    pack: Annotated[
        list[str] | None, typer.Option("--pack", metavar="NAME", help=PACK_HELP)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    as_suite: Annotated[
        Path | None,
        typer.Option(
            metavar="OUT",
            help="Write those of synchronization, or those that are named, into a new folder as "
            "plain scripts with a suite.json, for `hanglab eval --suite` and other tools.",
        ),
    ] = None,
    backend: OptionalBackendName = None,
) -> int:
    """List scenarios, without running or importing them."""
    from hanglab.harness.errors import UsageError
    from hanglab.harness.scenarios.packs import packs_of, select

    found = select(files or [], pack or [])
    if backend is not None and as_suite is None:
        raise UsageError(
            f"--backend {backend} is for --as-suite.", "`hanglab run --backend` runs on it."
        )
    if as_suite is not None:
        chosen = [one for one in found.scenarios if files or pack or one.category == _EXPORTED]
        return _export(chosen, as_suite, backend or DEFAULT_BACKEND)
    found.scenarios.sort(key=lambda scenario: (scenario.category or "", scenario.name))
    if as_json:
        import msgspec

        rows = [
            {
                "scenario": scenario.name,
                "category": scenario.category,
                "cause": expect.cause.value
                if (expect := scenario.expect) and expect.cause
                else None,
                "file": str(scenario.source),
                "line": scenario.line,
                "world_size": scenario.world_size,
                "needs": scenario.needs,
                "reference": scenario.reference,
                "zoo": scenario.zoo,
                "packs": packs_of(scenario),
                "description": scenario.description,
            }
            for scenario in found.scenarios
        ]
        print(msgspec.json.format(msgspec.json.encode(rows)).decode())
    else:
        from rich import box
        from rich.table import Table

        from hanglab.harness.report.panel import make_console

        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for column in ("category", "scenario", "ranks", "what happens", "reference"):
            table.add_column(column, overflow="fold", no_wrap=column in ("category", "scenario"))
        for scenario in found.scenarios:
            ranks = str(scenario.world_size)
            words = (scenario.name, ranks, scenario.description, scenario.reference)
            table.add_row(scenario.category, *words)
        make_console().print(table)
    for broken in found.broken:
        typer.echo(f"hanglab: {broken.describe()}", err=True)
    return 4 if found.broken else 0


def _export(scenarios: list[Scenario], folder: Path, backend: str) -> int:
    from hanglab.harness.evaluation.suite.export import export_suite

    export = export_suite(scenarios, folder, backend)
    for name, reason in export.refused.items():
        typer.echo(f"hanglab: {name} is left out: it {reason}", err=True)
    print(
        f"{folder}: {len(export.suite.scripts)} scripts; `hanglab eval --suite {folder}` runs them"
    )
    return 0
