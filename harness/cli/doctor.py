"""``hanglab doctor``: what this machine can run, and why not the rest."""

from __future__ import annotations

from typing import Annotated

import typer


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Say what this machine can run, and what the rest would need."""
    from hanglab.harness import capabilities

    found = capabilities.all_capabilities()
    if as_json:
        import msgspec

        print(msgspec.json.format(msgspec.json.encode(found)).decode())
        return 0
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from hanglab.harness.discovery import read_project
    from hanglab.harness.panel import make_console
    from hanglab.harness.suite import Options, plan

    console = make_console()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("capability", "", "found", "what would help"):
        table.add_column(column, overflow="fold")
    for capability in found:
        word = Text("yes", style="green") if capability.available else Text("no", style="yellow")
        table.add_row(capability.name, word, capability.reason, capability.remedy)
    console.print(table)
    scenarios = read_project()
    for backend in ("gloo", "nccl"):
        requests, settled = plan(scenarios, Options(backend=backend, control=False))
        missing = [result for result in settled if result.request is not None]
        total = len(requests) + len(missing)
        console.print(f"{backend}: {len(requests)} of {total} scenarios can run")
        for reason in sorted({result.judgement.reason for result in missing}):
            console.print(f"  {reason}")
    return 0
