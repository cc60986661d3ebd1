"""No peeking: rewritten scenarios get the same verdict, or a weaker one, on the same ranks.

See rewriting.py for what is changed.  The verdict must be the analyzer's own
conclusion from the Case, so it may lose certainty but never move to a rank
that did nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from rewriting import may_change_ranks, rewrite

from hanglab.harness.scenarios import discovery

#: Those that fit any of the world sizes.  NCCL-only ones are skipped without GPUs anyway.
SCENARIOS = sorted(
    (scenario.source, scenario.category)
    for scenario in discovery.read_project().scenarios
    if scenario.world_size >= 3
    and "gloo" in scenario.backends
    # What is done to nodes is declared by rank, and containers take their time.
    and "docker" not in scenario.needs
)
#: Of these a rank hosts what is lost: its part is nowhere in the program.
FIXED_RANKS = frozenset({"network"})

#: Neighbouring ranks stay neighbours, so that programs made of pairs keep their pairs.
PERMUTED: dict[int, dict[int, int]] = {
    3: {0: 1, 1: 0, 2: 2, 3: 2},
    4: {0: 2, 1: 3, 2: 0, 3: 1},
    5: {0: 3, 1: 2, 2: 1, 3: 0, 4: 4},
}


def run_rewritten(
    folder: Path,
    scenarios: Iterable[tuple[Path, str]],
    world_size: int,
    ranks: Mapping[int, int],
) -> list[tuple[str, dict[str, Any]]]:
    """(original scenario, result) of fault and control of every rewritten scenario."""
    originals: dict[str, str] = {}
    files = []
    for source, category in scenarios:
        fixed = category in FIXED_RANKS or not may_change_ranks(source)
        file, name = rewrite(source, folder, {} if fixed else ranks)
        originals[name] = source.stem
        files.append(str(file))
    command = [sys.executable, "-m", "hanglab.harness.cli", "run", *files]
    command += ["--json", "--jobs", "2", "--world-size", str(world_size)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=900)
    results = json.loads(done.stdout)["results"]
    return [(originals[result["scenario"]], result) for result in results]


def cause_of(finding: Mapping[str, Any]) -> tuple[str, tuple[int, ...]]:
    return finding["cause"], tuple(finding["culprits"])


@pytest.mark.few(1)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("scenarios", "world_size"),
    [
        # One of sixteen, of each category.
        pytest.param(SCENARIOS[::16], 4, id="4"),
        pytest.param(
            [one for place, one in enumerate(SCENARIOS) if place % 16],
            4,
            id="4-others",
            marks=pytest.mark.long,
        ),
        pytest.param(SCENARIOS, 3, id="3", marks=pytest.mark.long),
        pytest.param(SCENARIOS, 5, id="5", marks=pytest.mark.long),
    ],
)
@pytest.mark.timeout(900)
def test_verdicts_survive_another_name_rank_and_step(
    tmp_path: Path, scenarios: Sequence[tuple[Path, str]], world_size: int
) -> None:
    results = [
        (scenario, result)
        for scenario, result in run_rewritten(tmp_path, scenarios, world_size, PERMUTED[world_size])
        # For what this machine lacks.
        if result["outcome"] != "skipped"
    ]
    assert len(results) >= len(scenarios), "most run, as fault and as control"
    same, weaker, wrong = 0, [], []
    for scenario, result in results:
        verdict = result["verdict"]
        title = f"{scenario} {result['variant']}"
        if verdict is None:
            wrong.append(f"{title}: {result['outcome']}: {result['reason']}")
            continue
        said = [verdict["status"], *map(cause_of, verdict["findings"])]
        if result["variant"] == "control":
            if verdict["status"] != "healthy":
                wrong.append(f"{title}: {said}: {verdict['findings']}")
            continue
        expected = result["expected"]
        wanted = {cause_of(one) for one in (expected, *expected["also"])}
        found = {cause_of(one) for one in verdict["findings"] if one["cause"]}
        # Absence is the weaker word for any of these.
        absent = {("missing_rank", culprits) for _, culprits in wanted}
        if found == wanted and verdict["status"] == expected["status"]:
            same += 1
        elif found <= wanted | absent and (found or verdict["status"] == "inconclusive"):
            weaker.append(f"{title}: {said}")
        else:
            wrong.append(f"{title}: {said}, expected {expected}: {verdict['findings']}")
    assert not wrong, "\n".join(wrong)
    assert len(weaker) <= 2, "\n".join(weaker)
    assert same
