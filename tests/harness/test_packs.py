"""Packs of scenarios: hanglab's own, one that somebody publishes, and what pytest makes of both."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from plugin_support import HEADER, SOUND, command, environment

from hanglab.harness.cli import main
from hanglab.harness.pytest_plugin import _PACKS
from hanglab.harness.scenarios import packs
from hanglab.harness.scenarios.discovery import read_file, read_project
from hanglab.harness.scenarios.packs import BUILT_IN, packs_of


def hanglab(folder: Path, *arguments: str, at: Path | None = None) -> str:
    """Output of a command, with what is installed at ``at`` on the path."""
    changes = {"PYTHONPATH": str(at)} if at else {}
    done = subprocess.run(
        [sys.executable, "-m", "hanglab.harness.cli", *arguments],
        cwd=folder,
        env={**os.environ, **changes},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the pack that `hanglab new pack` writes is installed, as pip does it."""
    folder = tmp_path_factory.mktemp("published")
    hanglab(folder, "new", "pack", "ours")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    target = folder / "installed"
    subprocess.run(
        [*pip, "--no-index", "--target", target, folder / "hanglab-pack-ours"], check=True
    )
    return target


def test_every_scenario_is_in_a_pack_of_hanglabs() -> None:
    held: dict[str, list[str]] = {name: [] for name in BUILT_IN}
    for scenario in read_project().scenarios:
        assert packs_of(scenario), scenario.name
        for name in packs_of(scenario):
            held[name].append(scenario.name)
    assert all(len(names) >= 5 for names in held.values()), held
    assert "idle_replica" in held["serving"] and "idle_replica" not in held["training"]
    assert "skipped_collective" in held["training"]
    assert {"crossed_on_device", "device_stopped"} <= set(held["nccl"])


def test_the_plugin_knows_the_markers_of_hanglabs_packs() -> None:
    assert tuple(BUILT_IN) == _PACKS


def test_lists_and_runs_keep_to_a_pack(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--pack", "serving", "--pack", "rl", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert all({"serving", "rl"} & set(row["packs"]) for row in rows)
    names = {row["scenario"] for row in rows}
    assert {"idle_replica", "next_bucket"} <= names and "crash" not in names
    assert main(["list", "crash", "idle_replica", "--pack", "serving", "--json"]) == 0
    assert [row["scenario"] for row in json.loads(capsys.readouterr().out)] == ["idle_replica"]


def test_an_unknown_pack_is_told_with_those_that_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["run", "--pack", "service"]) == 64
    told = capsys.readouterr().err
    assert "no pack 'service'" in told and "serving, rl, training" in told


def test_a_pack_that_names_nothing_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    info = tmp_path / "broken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[hanglab.packs]\nbroken = nowhere_at_all\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    packs.installed_packs.cache_clear()
    try:
        assert main(["packs"]) == 64
        assert "'nowhere_at_all', which is no package" in capsys.readouterr().err
        (info / "entry_points.txt").write_text("[hanglab.packs]\nserving = json\n")
        packs.installed_packs.cache_clear()
        assert main(["packs"]) == 64
        assert "broken and hanglab both bring a pack 'serving'" in capsys.readouterr().err
    finally:
        packs.installed_packs.cache_clear()


@pytest.mark.long
def test_a_pack_that_is_installed_is_listed_and_runs(published: Path, tmp_path: Path) -> None:
    listed = {
        row["pack"]: row for row in json.loads(hanglab(tmp_path, "packs", "--json", at=published))
    }
    assert list(listed) == [*BUILT_IN, "ours"]
    assert listed["ours"] == {
        "pack": "ours",
        "scenarios": 1,
        "distribution": "hanglab-pack-ours",
        "folder": str(published / "hanglab_pack_ours"),
        "description": "Hangs of ours.",
    }
    done = json.loads(hanglab(tmp_path, "run", "--pack", "ours", "--json", at=published))
    assert [(one["scenario"], one["variant"], one["outcome"]) for one in done["results"]] == [
        ("ours_skipped", "fault", "pass"),
        ("ours_skipped", "control", "pass"),
    ]


def collected(folder: Path, *arguments: object, at: Path | None = None) -> list[str]:
    changes = {"PYTHONPATH": str(at)} if at else {}
    ran = subprocess.run(
        command("--collect-only", "-q", "--strict-markers", *arguments),
        cwd=folder,
        env=environment(folder, changes),
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return sorted(
        {line.rsplit("::", 1)[1].split("[")[0] for line in ran.stdout.splitlines() if "::" in line}
    )


@pytest.mark.slow
def test_pytest_collects_packs_by_marker_and_by_option(published: Path, tmp_path: Path) -> None:
    serving = sorted(one.name for one in read_project().scenarios if "serving" in packs_of(one))
    assert collected(tmp_path, "--hanglab", "-m", "pack_serving") == serving
    assert collected(tmp_path, "--hanglab-pack", "serving") == serving
    assert collected(tmp_path, "--hanglab-pack", "ours", at=published) == ["ours_skipped"]


def test_a_users_own_pack_is_a_marker(tmp_path: Path) -> None:
    declared = SOUND.replace("world_size=2,", 'world_size=2, packs="night",').format(
        name="slow_one"
    )
    path = tmp_path / "hanglab_mine.py"
    path.write_text(HEADER + declared + SOUND.format(name="other_one"))
    assert collected(tmp_path, "-m", "pack_night") == ["slow_one"]
    assert read_file(path).scenarios[0].packs == ("night",)


def test_a_pack_cannot_be_named_as_no_marker_can(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(HEADER + SOUND.replace("world_size=2,", 'packs="at night",').format(name="one"))
    (broken,) = read_file(path).broken
    assert "letters, digits and _" in broken.reason


def test_nothing_is_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "pack", "ours", "-o", str(tmp_path)]) == 0
    assert main(["new", "pack", "ours", "-o", str(tmp_path)]) == 64
    assert main(["new", "pack", "serving", "-o", str(tmp_path)]) == 64
    assert main(["new", "pack", "Our-s", "-o", str(tmp_path)]) == 64
    told = capsys.readouterr().err
    assert "is not empty" in told and "of its own" in told and "is no name" in told
