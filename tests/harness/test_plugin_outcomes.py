"""What items report: the kinds of failure told apart, JUnit, the summary, pass rates."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

import pytest
from plugin_support import SOUND, environment, junit_properties, run_pytest, write

from hanglab.harness.jobs.outcome import Judgement, Outcome
from hanglab.harness.jobs.plan import Options, requests_of
from hanglab.harness.jobs.run import Result
from hanglab.harness.pytest_plugin.failure import describe_failure
from hanglab.harness.scenarios import discovery

BODIES = {
    "wrong": SOUND.format(name="wrong").replace(
        "Cause.SKIPPED_COLLECTIVE, culprits={1}", "Cause.GROUP_ORDER, culprits={0}"
    ),
    "harmless": """
@scenario(world_size=2, expect=Expect(Cause.MISSING_RANK, culprits={1}))
def harmless(job):
    for step in job.steps(3):
        dist.all_reduce(torch.ones(4))  # FAULT
""",
    "raises": """
@scenario(world_size=2, expect=Expect(Cause.MISSING_RANK, culprits={1}))
def raises(job):
    no_such_thing
    dist.all_reduce(torch.ones(4))  # FAULT
""",
    "elsewhere": """
@scenario(world_size=2, backends=("nccl",), expect=Expect(Cause.MISSING_RANK, culprits={1}))
def elsewhere(job):
    dist.all_reduce(torch.ones(4))  # FAULT
""",
}


@dataclass(frozen=True)
class Suite:
    folder: Path
    code: int
    out: str
    junit: dict[str, dict[str, str]]

    def properties(self, name: str, variant: str = "fault") -> dict[str, str]:
        return self.junit[f"{name}[{variant}-gloo-local-2]"]


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Suite:
    """One run over two workers, as on CI, where pytest's own summary is longer."""
    folder = tmp_path_factory.mktemp("outcomes")
    write(folder, "hanglab_sound.py", SOUND.format(name="sound"))
    for name, body in BODIES.items():
        write(folder, f"hanglab_{name}.py", body)
    options = ["-n", "2", "--junitxml=junit.xml", "--hanglab-artifacts=kept", "-rsf"]
    page = {"GITHUB_STEP_SUMMARY": str(folder / "page.md"), "CI": "true"}
    ran = run_pytest(folder, *options, changes=page)
    return Suite(folder, ran.code, ran.out, junit_properties(folder / "junit.xml"))


@pytest.mark.parametrize(
    "name, variant, outcome",
    [
        ("sound", "fault", "pass"),
        ("sound", "control", "pass"),
        ("wrong", "fault", "wrong verdict"),
        ("wrong", "control", "pass"),
        ("harmless", "fault", "not reproduced"),
        ("raises", "fault", "harness error"),
        ("raises", "control", "harness error"),
        ("elsewhere", "fault", "skipped"),
    ],
)
def test_each_item_has_its_outcome(suite: Suite, name: str, variant: str, outcome: str) -> None:
    assert suite.properties(name, variant)["outcome"] == outcome, suite.out
    if outcome not in ("pass", "skipped"):
        assert f"{outcome.upper()} hanglab_{name}.py::{name}[{variant}-" in suite.out


def test_the_run_fails_and_counts(suite: Suite) -> None:
    assert suite.code == 1
    counts = "10 jobs: 4 pass, 1 wrong verdict, 1 not reproduced, 2 harness error, 2 skipped"
    assert counts in suite.out


def test_junit_has_all_properties(suite: Suite) -> None:
    found = suite.properties("sound")
    assert found == {
        "scenario": "sound",
        "variant": "fault",
        "backend": "gloo",
        "launcher": "local",
        "world_size": "2",
        "seed": "0",
        "expected": "hung skipped_collective",
        "actual": "hung skipped_collective",
        "culprits": "1",
        "confidence": found["confidence"],
        "outcome": "pass",
        "reason": "",
        "artifacts": found["artifacts"],
    }
    assert 0 < float(found["confidence"]) <= 1
    folder = Path(found["artifacts"])
    assert folder.is_relative_to(suite.folder / "kept")
    verdict = json.loads((folder / "verdict.json").read_bytes())
    assert verdict["cause"] == "skipped_collective"


def test_a_failure_reads_well(suite: Suite) -> None:
    text = suite.out[suite.out.index("wrong verdict: cause should be group_order") :]
    table = [line.split("   ") for line in text.splitlines()[2:6]]
    cells = [[cell.strip() for cell in line if cell.strip()] for line in table]
    assert cells == [
        ["expected", "actual"],
        ["status", "hung", "hung"],
        ["> cause", "group_order", "skipped_collective"],
        ["> culprits", "0", "1"],
    ]
    assert "flight_recorder: rank 1: called broadcast" in text
    assert f"artifacts  {suite.properties('wrong')['artifacts']}\n" in text


def test_a_failure_without_a_folder_names_none(tmp_path: Path) -> None:
    path = write(tmp_path, "hanglab_a.py", SOUND.format(name="a"))
    (scenario,) = discovery.read_file(path).scenarios
    asked = requests_of(scenario, Options())[0]
    judgement = Judgement(Outcome.HARNESS_ERROR, "no room")
    lines = describe_failure(Result("a", asked, judgement)).splitlines()
    assert lines[-1].startswith("again ")
    assert not [line for line in lines if "artifacts" in line or "None" in line]


def test_the_summary_has_one_line_of_a_failure(suite: Suite) -> None:
    _, _, summary = suite.out.partition("short test summary info")
    line = (
        "hanglab_wrong.py::wrong[fault-gloo-local-2] - wrong verdict: cause should be group_order"
    )
    (found,) = [one for one in summary.splitlines() if line in one]
    assert found.startswith("WRONG VERDICT ")
    assert "again " not in summary
    cases = ElementTree.parse(suite.folder / "junit.xml").iter("testcase")
    (failure,) = [
        case.find("failure") for case in cases if case.get("name", "").startswith("harmless[f")
    ]
    assert failure is not None and failure.text is not None
    reason = "every rank ended without an error, although it should be hung"
    assert failure.get("message") == f"not reproduced: {reason}"
    assert "again      hanglab run" in failure.text


@pytest.mark.slow
def test_a_failure_is_repeated_by_its_command(suite: Suite) -> None:
    (line,) = [
        line
        for line in suite.out.splitlines()
        if line.startswith("again ") and "hanglab_harmless" in line
    ]
    words = shlex.split(line)[1:]
    assert words[:2] == ["hanglab", "run"]
    assert words[words.index("--seed") + 1] == "0"
    again = subprocess.run(
        [sys.executable, "-m", "hanglab.harness.cli", *words[1:], "--json"],
        cwd=suite.folder,
        env=environment(suite.folder),
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    outcomes = [result["outcome"] for result in json.loads(again.stdout)["results"]]
    assert outcomes == ["not reproduced", "pass"]


def test_the_job_page_has_what_did_not_pass_first(suite: Suite) -> None:
    page = (suite.folder / "page.md").read_text()
    assert page.startswith("## hanglab: 10 jobs: 4 pass")
    first, _, _ = page.partition("<details>")
    assert "| wrong, fault (gloo, local, 2 ranks) | hung group_order | hung skipped" in first
    assert "sound" not in first
    assert "- 2: runs on nccl only" in page
    kept = suite.folder / "kept/latest/summary.md"
    assert kept.read_text().strip() == page.strip()


def test_the_run_leaves_results_as_hanglab_run_does(suite: Suite) -> None:
    """Also from workers, and of what was skipped."""
    content = json.loads((suite.folder / "kept/latest/results.json").read_text())
    assert content["schema"] == "hanglab.run/1"
    assert (content["exit_code"], content["backend"], content["launcher"]) == (4, "gloo", "local")
    found = {(one["scenario"], one["variant"]): one for one in content["results"]}
    assert len(found) == len(content["results"]) == 10
    sound = found["sound", "fault"]
    folder = Path(content["folder"])
    assert Path(sound["artifacts"]) == folder / "sound/fault/0"
    assert sound["verdict"] == json.loads((folder / "sound/fault/0/verdict.json").read_text())
    assert sound["expected"]["culprits"] == [1]
    assert found["elsewhere", "control"]["reason"] == "runs on nccl only"
    assert found["elsewhere", "control"]["outcome"] == "skipped"
    assert "NameError" in found["raises", "fault"]["detail"]


def test_several_combinations_leave_a_folder_with_results_each(tmp_path: Path) -> None:
    """And where artifacts were asked for, also a run without a job says what it did."""
    write(tmp_path, "hanglab_elsewhere.py", BODIES["elsewhere"])
    ran = run_pytest(tmp_path, "--hanglab-world-size=2,3", "--hanglab-artifacts=kept")
    assert ran.code == 0, ran.out
    for world_size in (2, 3):
        part = tmp_path / f"kept/latest/gloo-local-{world_size}/results.json"
        results = json.loads(part.read_text())["results"]
        assert [one["world_size"] for one in results] == [world_size] * 2
        assert [one["variant"] for one in results] == ["fault", "control"]


def test_scenarios_of_different_sizes_share_one_file_of_results(tmp_path: Path) -> None:
    small, large = BODIES["elsewhere"], BODIES["elsewhere"].replace("world_size=2", "world_size=5")
    write(tmp_path, "hanglab_a.py", small.replace("def elsewhere", "def small"))
    write(tmp_path, "hanglab_b.py", large.replace("def elsewhere", "def large"))
    ran = run_pytest(tmp_path, "--hanglab-artifacts=kept", "-n", "1")
    assert ran.code == 0, ran.out
    content = json.loads((tmp_path / "kept/latest/results.json").read_text())
    assert [(one["scenario"], one["world_size"]) for one in content["results"]] == [
        ("large", 5),
        ("large", 5),
        ("small", 2),
        ("small", 2),
    ]
    assert content["launcher"] == "local"


@pytest.mark.long
def test_what_took_longest_comes_first(suite: Suite) -> None:
    """By the durations of the first run, which pytest's cache keeps."""
    cached = suite.folder / ".pytest_cache/v/hanglab/durations"
    durations = json.loads(cached.read_text())
    assert set(durations) == {
        f"hanglab_{name}.py::{name}[{variant}-gloo-local-2]"
        for name in ("sound", "wrong", "harmless", "raises")
        for variant in ("fault", "control")
    }
    ran = run_pytest(suite.folder, "-n", "1", "-v", "-k", "sound or wrong")
    names = [line.split()[-1] for line in ran.out.splitlines() if line.startswith("[gw0] [")]
    assert len(names) == 4
    assert names == sorted(names, key=lambda name: -durations[name])


@pytest.mark.slow
def test_repetitions_have_seeds_of_their_own_and_a_rate(tmp_path: Path) -> None:
    body = SOUND.format(name="fickle").replace(
        "job.rank == 1 and", "job.rank == 1 and job.seed != 1 and"
    )
    write(tmp_path, "hanglab_fickle.py", body)
    ran = run_pytest(tmp_path, "--hanglab-repeat=3", "-k", "fault", "--junitxml=junit.xml")
    found = junit_properties(tmp_path / "junit.xml")
    assert {name: one["outcome"] for name, one in found.items()} == {
        "fickle[fault-gloo-local-2-seed0]": "pass",
        "fickle[fault-gloo-local-2-seed1]": "not reproduced",
        "fickle[fault-gloo-local-2-seed2]": "pass",
    }
    rate = "fickle fault (gloo, local, 2 ranks): 2 of 3 passed, 67 % (95 % interval 21 to 94 %)"
    assert rate in ran.out
    assert "--seed 1 " in ran.out
