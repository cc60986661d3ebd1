"""``hanglab doctor``: what this machine can run, and why not the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from hanglab.harness.capabilities import Capability


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Say what this machine can run, which faults it can stage, and what the rest would need."""
    from hanglab.harness import capabilities
    from hanglab.harness.faults.discovery import all_faults

    found = capabilities.all_capabilities()
    faults = {
        fault.__name__: capabilities.capability(fault.needs) if fault.needs else None
        for fault in all_faults()
    }
    if as_json:
        import msgspec

        rows = [
            {"name": name, "needs": need.name if need else None, "available": _stands(need)}
            for name, need in faults.items()
        ]
        told = {"capabilities": found, "faults": rows}
        print(msgspec.json.format(msgspec.json.encode(told)).decode())
        return 0
    from hanglab.harness.report.panel import make_console

    console = make_console()
    table = _table("capability", "", "found", "what would help")
    for capability in found:
        word = _word(capability.available)
        table.add_row(capability.name, word, capability.reason, capability.remedy)
    console.print(table)
    table = _table("fault", "", "needs")
    for name, need in faults.items():
        table.add_row(name, _word(_stands(need)), need.name if need else "")
    console.print(table)
    able = sum(map(_stands, faults.values()))
    console.print(f"{able} of {len(faults)} faults can be staged here")
    for line in _scenarios():
        console.print(line)
    return 0


def _stands(need: Capability | None) -> bool:
    return need is None or need.available


def _word(yes: bool) -> Text:
    from rich.text import Text

    return Text("yes", style="green") if yes else Text("no", style="yellow")


def _table(*columns: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _scenarios() -> list[str]:
    """Number of scenarios that can run, and the reasons of the rest."""
    from hanglab.harness.jobs.plan import Options, plan
    from hanglab.harness.scenarios.discovery import read_project
    from hanglab.recorder.case.backends import RUNNABLE

    lines = []
    scenarios = read_project()
    for backend in RUNNABLE:
        requests, settled = plan(scenarios, Options(backend=backend, control=False))
        missing = [result for result in settled if result.request is not None]
        lines.append(
            f"{backend}: {len(requests)} of {len(requests) + len(missing)} scenarios can run"
        )
        lines += [f"  {reason}" for reason in sorted({one.judgement.reason for one in missing})]
    return lines
