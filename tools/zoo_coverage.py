"""The page of known hangs and the scenarios that stage them (`docs/coverage.md`).

``python -m tools.zoo_coverage`` writes it anew from `scenarios/zoo.json` and from what the
scenarios declare.  A test compares.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

import msgspec

from hanglab.harness.jobs.plan import Options, refusal_anywhere, requests_of
from hanglab.harness.launchers.selection import LAUNCHERS
from hanglab.harness.scenarios.declaration import Expect, Scenario
from hanglab.harness.scenarios.discovery import project_folder, read_project

PAGE = Path(__file__).parents[1] / "docs" / "coverage.md"

SECTIONS: Final = {
    "A": "Data starvation",
    "B": "Resources",
    "C": "Network",
    "D": "Software",
    "E": "Synchronization",
    "F": "Stragglers",
    "G": "Hardware",
    "H": "Serving, reinforcement learning and newer stacks",
}

_INTRODUCTION: Final = """\
# Coverage

Hangs and slow jobs that people have reported, and the scenarios that stage them. Written by
`python -m tools.zoo_coverage` from `scenarios/zoo.json` and the scenarios' declarations
(`zoo="A8"`); a test keeps it true. A launcher in the table can start the scenario where the machine
has what it needs (`hanglab doctor`).

"""


class KnownHang(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A root cause that somebody has reported."""

    #: Letter of its section, and a number.
    id: str
    name: str
    mechanism: str
    references: list[str]
    #: The evidence that tells it apart from what looks like it.
    tells_apart: str
    #: The reason that no scenario stages it; empty where one does.
    not_staged: str = ""

    @property
    def section(self) -> str:
        return self.id[0]


def read_rows() -> list[KnownHang]:
    """All rows, in the order of the file."""
    return msgspec.json.decode((project_folder() / "zoo.json").read_bytes(), type=list[KnownHang])


def contradictions(rows: Sequence[KnownHang], scenarios: Sequence[Scenario]) -> list[str]:
    """Sentences on what rows and scenarios say differently; none where the page can be true."""
    found = []
    known = {row.id for row in rows}
    for scenario in scenarios:
        for row_id in scenario.zoo:
            if row_id not in known:
                found.append(f"{scenario.name} names row {row_id}, which there is not.")
    for row in rows:
        staged = [one.name for one in scenarios if row.id in one.zoo]
        if staged and row.not_staged:
            found.append(f"{row.id} has a reason not to be staged, and is, by {staged[0]}.")
        if not staged and not row.not_staged:
            found.append(f"{row.id} has neither a scenario nor a reason.")
    return found


def launchers_of(scenario: Scenario) -> list[str]:
    """Launchers that can start it on one of its backends, on some machine."""
    return [
        name for name in LAUNCHERS if any(_starts(name, scenario, b) for b in scenario.backends)
    ]


def _starts(launcher: str, scenario: Scenario, backend: str) -> bool:
    request = requests_of(scenario, Options(launcher=launcher, backend=backend))[0]
    # A scenario that needs a launcher runs there, whatever is asked for.
    return request.launcher == launcher and refusal_anywhere(scenario, request) is None


def page(rows: Sequence[KnownHang], scenarios: Sequence[Scenario]) -> str:
    """The whole page, in Markdown."""
    staged = {row_id for scenario in scenarios for row_id in scenario.zoo}
    covered = sum(row.id in staged for row in rows)
    named = sum(bool(scenario.zoo) for scenario in scenarios)
    text = [_INTRODUCTION]
    text.append(
        f"{covered} of {len(rows)} rows are staged, by {named} scenario{'s' * (named != 1)}.\n"
    )
    for letter, group in groupby(rows, key=lambda row: row.section):
        text.append(f"\n## {letter}: {SECTIONS[letter]}\n\n")
        text += [f"{line}\n" for line in _section(list(group), scenarios)]
    text.append("\n## Scenarios beside the rows\n\n")
    text.append("| scenario | cause | reference |\n|---|---|---|\n")
    for one in sorted(scenarios, key=lambda scenario: scenario.name):
        if not one.zoo:
            text.append(f"| {_linked(one)} | {_cause(one)} | {one.reference} |\n")
    return "".join(text)


def _section(rows: Sequence[KnownHang], scenarios: Sequence[Scenario]) -> Iterator[str]:
    yield "| row | what happens | reported | what tells it apart |"
    yield "|---|---|---|---|"
    for row in rows:
        what = f"**{row.name}**: {row.mechanism}"
        yield f"| {row.id} | {what} | {', '.join(row.references)} | {row.tells_apart} |"
    yield ""
    yield "| row | scenario | cause | backends | launchers |"
    yield "|---|---|---|---|---|"
    for row in rows:
        for one in (one for one in scenarios if row.id in one.zoo):
            places = f"{', '.join(one.backends)} | {', '.join(launchers_of(one))}"
            yield f"| {row.id} | {_linked(one)} | {_cause(one)} | {places} |"
        if row.not_staged:
            yield f"| {row.id} | {row.not_staged} | | | |"


def _linked(scenario: Scenario) -> str:
    path = scenario.source.relative_to(project_folder().parent).as_posix()
    return f"[{scenario.name}](../{path})"


def _cause(scenario: Scenario) -> str:
    expect = scenario.expect
    assert isinstance(expect, Expect)
    return f"`{expect.cause.value}`" if expect.cause else str(scenario.category)


if __name__ == "__main__":
    known, project = read_rows(), read_project().scenarios
    for contradiction in contradictions(known, project):
        raise SystemExit(contradiction)
    PAGE.write_text(page(known, project))
