"""What this machine can run: every answer has its reason, every no its remedy."""

from __future__ import annotations

import importlib.metadata

import pytest

from hanglab.harness import capabilities


def test_every_answer_has_a_reason_and_every_no_a_remedy() -> None:
    found = capabilities.all_capabilities()
    assert [capability.name for capability in found] == list(capabilities.names())
    for capability in found:
        assert capability.reason
        assert capability.available or capability.remedy


def test_an_unreachable_docker_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    capabilities.capability.cache_clear()
    found = capabilities.capability("docker")
    capabilities.capability.cache_clear()
    assert not found.available
    assert "/nowhere/docker.sock" in found.reason


def test_an_unknown_capability_is_a_mistake() -> None:
    with pytest.raises(KeyError):
        capabilities.capability("teleport")


def test_run_without_torch_says_which_extra_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from hanglab.harness.cli import main

    def missing(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    capabilities.capability.cache_clear()
    code = main(["run", "skipped_collective"])
    capabilities.capability.cache_clear()
    assert code == 4
    assert "hanglab[run]" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("version", "able"),
    [
        ("2.6.0", False),
        ("2.7.0+cpu", True),
        ("2.13.0+cpu", True),
        ("1.13.1", False),
        ("main", True),
    ],
)
def test_kineto_takes_requests_from_torch_2_7_on(version: str, able: bool) -> None:
    found = capabilities.judge_kineto(version)
    assert found.available is able
    assert able or "2.7" in found.remedy
