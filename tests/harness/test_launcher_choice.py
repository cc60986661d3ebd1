"""Which launcher a scenario's jobs get, and over how many nodes they are spread."""

from __future__ import annotations

from pathlib import Path

import pytest

from hanglab.harness.capabilities import capability
from hanglab.harness.jobs.plan import Options, refusal_of, requests_of
from hanglab.harness.jobs.reproduction import command
from hanglab.harness.launchers.selection import (
    LAUNCHERS,
    Launchers,
    LauncherSpec,
    launcher_of,
    make_launcher,
)
from hanglab.harness.scenarios.discovery import select

_FILE = """\
from hanglab.harness import Cause, Expect, scenario

@scenario(expect=Expect(Cause.CRASH, culprits={1}, location=None), needs=("docker",), nodes=2)
def in_containers(job):
    pass

@scenario(expect=Expect(Cause.CRASH, culprits={1}, location=None))
def anywhere(job):
    pass
"""


@pytest.mark.parametrize("asked", LAUNCHERS)
def test_what_needs_docker_runs_in_containers(tmp_path: Path, asked: str) -> None:
    file = tmp_path / "two.py"
    file.write_text(_FILE)
    found = {scenario.name: scenario for scenario in select([str(file)]).scenarios}
    options = Options(launcher=asked)
    fault, control = requests_of(found["in_containers"], options)
    assert {fault.launcher, control.launcher} == {"docker"}
    assert {fault.nodes, control.nodes} == {2}
    assert command(fault).endswith("--launcher docker --nodes 2")
    other, _ = requests_of(found["anywhere"], options)
    assert (other.launcher, other.nodes) == (asked, None)
    spread, _ = requests_of(found["in_containers"], Options(launcher=asked, nodes=4))
    assert spread.nodes == 4
    assert launcher_of((), asked) == asked


def test_what_needs_a_root_rank_is_skipped_in_containers(tmp_path: Path) -> None:
    file = tmp_path / "two.py"
    file.write_text(_FILE.replace('needs=("docker",), nodes=2', 'needs=("private_mounts",)'))
    (scenario,) = select([f"{file}"]).scenarios[:1]
    (request, _) = requests_of(scenario, Options(launcher="docker"))
    assert refusal_of(scenario, request) == (
        "needs private_mounts: ranks in containers are not root; use another launcher"
    )
    (request, _) = requests_of(scenario, Options(launcher="local"))
    assert "containers" not in (refusal_of(scenario, request) or "")


def test_a_fault_of_a_host_is_refused_where_ranks_share_this_machine(tmp_path: Path) -> None:
    file = tmp_path / "frozen.py"
    file.write_text(
        _FILE.replace("Cause, Expect", "Cause, Expect, FreezeNode").replace(
            'needs=("docker",)', "faults=[FreezeNode(rank=1, at_step=1)]"
        )
    )
    frozen, sound = select([str(file)]).scenarios
    for name, spec in LAUNCHERS.items():
        asked = Options(launcher=name)
        refusal = refusal_of(frozen, requests_of(frozen, asked)[0]) or ""
        assert refusal.startswith("FreezeNode") == (not spec.own_hosts)
        assert "FreezeNode" not in (refusal_of(sound, requests_of(sound, asked)[0]) or "")


def test_launchers_are_made_once_and_when_needed() -> None:
    made = []

    def make(name: str):  # type: ignore[no-untyped-def]
        made.append(name)
        return make_launcher(name)

    launchers = Launchers(make)
    assert made == []
    assert launchers["torchrun"] is launchers["torchrun"]
    assert made == ["torchrun"]
    launchers.close()


@pytest.mark.parametrize("name", LAUNCHERS)
def test_each_row_makes_the_launcher_of_its_name_and_names_capabilities(name: str) -> None:
    launcher = make_launcher(name)
    assert launcher.name == name
    assert all(capability(need).name == need for need in LAUNCHERS[name].needs)
    launcher.close()


def test_a_launcher_is_one_row_of_the_table(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    spec = LauncherSpec("no.such.module", "None", needs=("gpu",), lacks=frozenset({"root"}))
    monkeypatch.setitem(LAUNCHERS, "cluster", spec)
    file = tmp_path / "two.py"
    file.write_text(_FILE.replace('needs=("docker",), nodes=2', 'needs=("root",)'))
    scenario = {found.name: found for found in select([f"{file}"]).scenarios}["in_containers"]
    (request, _) = requests_of(scenario, Options(launcher="cluster"))
    assert (refusal_of(scenario, request) or "").startswith("needs root")
    assert launcher_of(("cluster",), "local") == "cluster"
