"""The page of known hangs (`docs/coverage.md`), against the table and the scenarios themselves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hanglab.analyzer.verdict import Cause
from hanglab.harness.launchers.selection import LAUNCHERS
from hanglab.harness.scenarios.declaration import Expect, Scenario
from hanglab.harness.scenarios.discovery import project_folder, read_file, read_project
from tools.zoo_coverage import PAGE, KnownHang, contradictions, launchers_of, page, read_rows


def test_the_page_is_what_table_and_scenarios_say() -> None:
    rows, scenarios = read_rows(), read_project().scenarios
    assert contradictions(rows, scenarios) == []
    assert PAGE.read_text() == page(rows, scenarios), "run `python -m tools.zoo_coverage`"


def test_each_row_can_be_read_by_itself() -> None:
    rows = read_rows()
    assert len({row.id for row in rows}) == len(rows)
    for row in rows:
        assert row.name and row.mechanism and row.tells_apart and row.references, row.id
        # A bar would end a cell of the table.
        assert not any("|" in text for text in (row.name, row.mechanism, row.tells_apart)), row.id


def row(row_id: str, not_staged: str = "") -> KnownHang:
    return KnownHang(
        id=row_id,
        name="name",
        mechanism="mechanism",
        references=["somewhere#1"],
        tells_apart="evidence",
        not_staged=not_staged,
    )


def scenario(name: str, *zoo: str) -> Scenario:
    expect = Expect(Cause.CRASH, culprits={1}, location=None)
    path = project_folder() / "software" / f"{name}.py"
    return Scenario(name, path, 1, name, path, expect, zoo=zoo)


def test_a_row_has_a_scenario_or_a_reason_and_never_both() -> None:
    rows = [row("A1"), row("A2", "Needs hardware."), row("A3"), row("A4", "Needs hardware.")]
    found = contradictions(rows, [scenario("one", "A1", "A2"), scenario("two", "Z9")])
    assert found == [
        "two names row Z9, which there is not.",
        "A2 has a reason not to be staged, and is, by one.",
        "A3 has neither a scenario nor a reason.",
    ]


def test_the_page_tells_scenarios_and_reasons() -> None:
    rows = [row("A1"), row("A2", "Needs hardware.")]
    one = replace(scenario("one", "A1"), backends=("gloo",))
    text = page(rows, [one, scenario("two")])
    assert "1 of 2 rows are staged, by 1 scenario" in text
    line = "| A1 | [one](../scenarios/software/one.py) | `crash` | gloo |"
    assert f"{line} {', '.join(LAUNCHERS)} |" in text.splitlines()
    assert "| A2 | Needs hardware. | | | |" in text.splitlines()
    assert "| [two](../scenarios/software/two.py) | `crash` |  |" in text.splitlines()


def test_launchers_are_those_that_can_start_it() -> None:
    on_this_machine = [name for name, spec in LAUNCHERS.items() if not spec.spread]
    assert on_this_machine[:2] == ["local", "torchrun"] and "docker" not in on_this_machine
    assert launchers_of(scenario("one")) == list(LAUNCHERS)
    assert launchers_of(replace(scenario("one"), needs=("docker",))) == ["docker"]
    emulated = replace(scenario("one"), backends=("nccl-emulated",))
    assert launchers_of(emulated) == on_this_machine
    assert launchers_of(replace(emulated, needs=("private_mounts",))) == on_this_machine


@pytest.mark.parametrize(
    ("written", "rows"), [('"A3"', ("A3",)), ('("D2", "G9")', ("D2", "G9")), (None, ())]
)
def test_a_declaration_names_one_row_several_or_none(
    tmp_path: Path, written: str | None, rows: tuple[str, ...]
) -> None:
    file = tmp_path / "one.py"
    argument = f"    zoo={written},\n" if written else ""
    file.write_text(
        "from hanglab.harness import Cause, Expect, scenario\n\n"
        f"@scenario(\n    expect=Expect(Cause.CRASH, culprits={{1}}, location=None),\n{argument})\n"
        "def one(job):\n    pass\n"
    )
    (found,) = read_file(file).scenarios
    assert found.zoo == rows
