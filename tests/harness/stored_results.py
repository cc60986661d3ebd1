"""Made-up ``results.json`` of runs, and of pytest's JUnit files beside them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def job(scenario: str, outcome: str = "pass", **more: Any) -> dict[str, Any]:
    """A job as ``results.json`` has it."""
    return {
        "scenario": scenario,
        "variant": "fault",
        "backend": "gloo",
        "launcher": "local",
        "repetition": 0,
        "seed": 0,
        "world_size": 2,
        "code": "c" * 16,
        "outcome": outcome,
        "reason": "" if outcome == "pass" else "the reason",
        "expected": {"status": "hung", "cause": "skipped_collective"},
        "verdict": {"status": "hung", "cause": "skipped_collective", "culprits": [1]},
        "seconds": 2.0,
        "artifacts": None,
        **more,
    }


def write_run(at: Path, jobs: list[dict[str, Any]], hour: int = 0, **more: Any) -> Path:
    """A run's folder; ``shard=(1, 3)`` says which part of a suite it is."""
    at.mkdir(parents=True)
    if "shard" in more:
        number, of = more["shard"]
        more["shard"] = {"number": number, "of": of, "asked": more.pop("asked", "gloo, local")}
    content = {
        "schema": "hanglab.run/1",
        "folder": str(at),
        "hanglab": "0.1.0",
        "torch": "2.13.0",
        "started": f"2026-11-{1 + hour // 24:02}T{hour % 24:02}:00:00Z",
        "backend": "gloo",
        "launcher": "local",
        "results": jobs,
        **more,
    }
    (at / "results.json").write_text(json.dumps(content))
    return at


def write_junit(path: Path, *names: str, scenario: bool = True) -> Path:
    told = '<properties><property name="scenario" value="s"/></properties>' if scenario else ""
    cases = "".join(
        f'<testcase classname="c" name="{name}" time="1.5">{told}</testcase>' for name in names
    )
    path.write_text(
        f'<testsuites><testsuite name="pytest" errors="0" failures="1" skipped="0" '
        f'tests="{len(names)}" time="{1.5 * len(names)}">{cases}</testsuite></testsuites>'
    )
    return path
