"""The name of the host in a Case: the machine's, or that of one of several nodes on it."""

from __future__ import annotations

import socket

import pytest

from hanglab.recorder.system.host_name import host_name


@pytest.mark.parametrize("node", [None, "", socket.gethostname(), "{short}", "{short}.cluster"])
def test_a_node_is_as_a_rule_its_machine(node: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    short = socket.gethostname().partition(".")[0]
    monkeypatch.delenv("SLURMD_NODENAME", raising=False)
    if node is not None:
        monkeypatch.setenv("SLURMD_NODENAME", node.format(short=short))
    assert host_name() == socket.gethostname()


def test_several_nodes_of_one_machine_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURMD_NODENAME", "n2")
    assert host_name() == "n2"
