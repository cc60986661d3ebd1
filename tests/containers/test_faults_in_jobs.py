"""Whole runs with faults from outside: verdict, ground truth, and nothing that stays behind."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from conditions import wait_for

from hanglab.harness.capabilities import capability
from hanglab.harness.system.namespaces import tool

if TYPE_CHECKING:
    from docker import DockerClient

pytestmark = pytest.mark.docker
#: Of every family one: the network, the engine, a file server, a circumstance.
CHOSEN = {
    "silent_drop": "dropbetween",
    "node_paused": "freezenode",
    "file_server_gone": "blockdisk",
    "exception_skewed": "clockskew",
}


class Machine:
    """What faults and containers could leave behind, and is nobody's who still lives."""

    def __init__(self, client: DockerClient) -> None:
        self._client = client
        self._before = self._everything()

    def remains(self) -> set[str]:
        """Of what has come since, what no container or network of today explains."""
        return {
            thing
            for thing in self._everything() - self._before
            if not any(owner in thing for owner in self._owners())
        }

    def _everything(self) -> set[str]:
        # Network namespaces are among them: each is kept by being mounted.
        mounts = Path("/proc/self/mounts").read_text().splitlines()
        # The folder of named ones stays: `ip netns` mounts it once, whoever asks for the first.
        found = {f"mount {line.split()[1]}" for line in mounts} - {"mount /run/netns"}
        found |= {f"interface {path.name}" for path in Path("/sys/class/net").glob("br-*")}
        tc = tool("tc")
        if tc is not None:
            shown = subprocess.run([tc, "qdisc", "show"], capture_output=True, text=True)
            found |= {line for line in shown.stdout.splitlines() if "tbf" in line}
        return found

    def _owners(self) -> set[str]:
        owners = set[str]()
        for container in self._client.containers.list(all=True, ignore_removed=True):
            settings: Mapping[str, Any] = container.attrs
            sandbox = (settings.get("NetworkSettings") or {}).get("SandboxKey")
            key = Path(sandbox).name if sandbox else str(container.id)
            merged = ((settings.get("GraphDriver") or {}).get("Data") or {}).get("MergedDir")
            owners |= {key, str(container.id), merged or key}
        return owners | {f"br-{str(network.id)[:12]}" for network in self._client.networks.list()}


def run(folder: Path, *names: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "hanglab.harness.cli", "run", *names]
    done = subprocess.run(
        [*command, "--json", "--no-control"], cwd=folder, capture_output=True, text=True
    )
    results: list[dict[str, Any]] = json.loads(done.stdout)["results"]
    return results


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_faults_get_their_verdict_and_leave_nothing(tmp_path: Path, engine: DockerClient) -> None:
    for need in ("outside_processes", "outside_filter", "outside_storage"):
        found = capability(need)
        if not found.available:
            pytest.skip(f"needs {need}: {found.reason}; {found.remedy}")
    machine = Machine(engine)
    results = run(tmp_path, *CHOSEN)
    assert {result["scenario"]: result["outcome"] for result in results} == dict.fromkeys(
        CHOSEN, "pass"
    ), [result["reason"] for result in results]
    for result in results:
        folder = Path(result["artifacts"])
        truth = json.loads((folder / "truth.json").read_text())
        (fault,) = truth["faults"]
        assert fault["kind"] == CHOSEN[result["scenario"]]
        assert fault["proof"]["proved"] and fault["end_proof"]["proved"]
        assert truth["started_ns"] < fault["struck_ns"] <= fault["ended_ns"]
        told = [path for path in (folder / "case").rglob("*") if path.is_file()]
        assert told
        assert not [path for path in told if fault["kind"].encode() in path.read_bytes().lower()]
    wait_for(lambda: not machine.remains(), "a machine without remains")
    mine = {"label": "hanglab.owner"}
    containers = engine.containers.list(all=True, filters=mine, ignore_removed=True)
    networks = engine.networks.list(filters=mine)
    here = [thing.labels for thing in containers]
    here += [network.attrs["Labels"] for network in networks]
    assert not [
        labels for labels in here if labels.get("hanglab.run", "").startswith(str(tmp_path))
    ]
