"""``hanglab packs``: packs of scenarios, hanglab's own and the installed ones."""

from __future__ import annotations

from typing import Annotated

import typer

#: What `--pack` means, wherever it is offered.
PACK_HELP = "Only scenarios of this pack (repeat for several); `hanglab packs` lists them."


def packs(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """List packs of scenarios, with the distributions that bring them."""
    from hanglab.harness.scenarios.packs import all_packs, select

    rows = []
    broken = []
    for pack in all_packs():
        found = select([], [pack.name])
        broken += [] if pack.folder is None else found.broken
        rows.append((pack, len(found.scenarios)))
    if as_json:
        import msgspec

        listed = [
            {
                "pack": pack.name,
                "scenarios": count,
                "distribution": pack.distribution,
                "folder": str(pack.folder) if pack.folder else None,
                "description": pack.description,
            }
            for pack, count in rows
        ]
        print(msgspec.json.format(msgspec.json.encode(listed)).decode())
    else:
        from rich import box
        from rich.table import Table

        from hanglab.harness.report.panel import make_console

        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for column in ("pack", "scenarios", "from", "what is in it"):
            table.add_column(column, overflow="fold", no_wrap=column == "pack")
        for pack, count in rows:
            table.add_row(pack.name, str(count), pack.distribution, pack.description)
        make_console().print(table)
    for one in broken:
        typer.echo(f"hanglab: {one.describe()}", err=True)
    return 4 if broken else 0
