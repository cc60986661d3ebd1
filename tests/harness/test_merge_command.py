"""``hanglab merge``: shards as one run, and all that must not be united."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from plugin_support import SOUND, run_pytest, write
from stored_results import job, write_junit, write_run

from hanglab.harness.cli import main
from hanglab.harness.jobs.stored_run import read_run


def merged(*words: object) -> int:
    return main(["merge", *map(str, words)])


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    """Three shards, of which the second has a wrong verdict, and artifacts that were moved."""
    second = [
        job("b", "wrong verdict", artifacts="/runner/7/run/b/fault/0"),
        job("b", variant="control", expected={"status": "healthy"}),
    ]
    return [
        write_run(tmp_path / "1", [job("d"), job("a")], hour=2, shard=(1, 3)),
        write_run(tmp_path / "2", second, hour=1, shard=(2, 3), folder="/runner/7/run"),
        write_run(tmp_path / "3", [job("c", "skipped")], hour=3, shard=(3, 3), torch="2.13.0+cpu"),
    ]


def test_shards_become_one_run(
    shards: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.read_bytes() for path in tmp_path.rglob("results.json")}
    whole = tmp_path / "whole"
    assert merged(*shards, "-o", whole) == 1
    out = capsys.readouterr().out
    assert "5 jobs: 3 pass, 1 wrong verdict, 1 skipped" in out
    assert "wrong verdict  b fault (gloo, local)  the reason" in out
    run = read_run(whole / "results.json").run
    assert [(one.scenario, one.variant) for one in run.results] == [
        ("a", "fault"), ("b", "fault"), ("b", "control"), ("c", "fault"), ("d", "fault")
    ]  # fmt: skip
    assert run.results[1].artifacts == str(tmp_path / "2" / "b" / "fault" / "0")
    assert run.counts == {"gloo": {"pass": 3, "wrong verdict": 1, "skipped": 1}}
    assert (run.exit_code, run.hanglab, run.torch) == (1, "0.1.0", "2.13.0")
    assert run.started is not None and run.started.hour == 1
    assert [str(part.shard) for part in run.merged] == [f"{n}/3 (gloo, local)" for n in (1, 2, 3)]
    summary = (whole / "summary.md").read_text()
    assert "b, fault (gloo, local, 2 ranks) | hung skipped_collective" in summary
    assert all(path.read_bytes() == text for path, text in before.items())
    # It is a run like any other: for the page of it, and to be united further.
    assert main(["report", str(whole), "-o", str(tmp_path / "page.html")]) == 0
    more = write_run(tmp_path / "more", [job("e")])
    assert merged(whole, more, "-o", tmp_path / "all") == 1
    assert len(read_run(tmp_path / "all" / "results.json").run.merged) == 4
    # Nothing is overwritten.
    assert merged(*shards, "-o", whole) == 64


def test_missing_and_interrupted_shards_are_told(
    shards: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, _, third = shards
    whole = tmp_path / "whole"
    assert merged(first, third, "-o", whole) == 4
    told = capsys.readouterr().err
    assert "Shard 2/3 (gloo, local) is missing." in told and "--incomplete" in told
    assert not whole.exists()
    assert merged(first, third, "-o", whole, "--incomplete") == 4
    assert "missing shards: 2/3" in capsys.readouterr().out
    run = read_run(whole / "results.json").run
    assert [shard.number for shard in run.missing_shards] == [2]
    # What is missing can come later.
    assert merged(whole, shards[1], "-o", tmp_path / "later") == 1
    assert not read_run(tmp_path / "later" / "results.json").run.missing_shards
    cut = write_run(tmp_path / "cut", [job("x")], interrupted=True)
    assert merged(cut, "-o", tmp_path / "none") == 4
    assert f"{cut} was interrupted" in capsys.readouterr().err


def test_shards_of_other_backends_are_of_another_suite(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = write_run(tmp_path / "1", [job("a")], shard=(1, 2))
    there = write_run(tmp_path / "2", [job("a", backend="nccl")], shard=(2, 2), asked="nccl, local")
    assert merged(here, there, "-o", tmp_path / "whole") == 4
    assert "Shards 2/2 (gloo, local), 1/2 (nccl, local) are missing." in capsys.readouterr().err


@pytest.mark.parametrize(
    "more, code",
    [
        ({"reason": "another try"}, 64),
        ({"seed": 5}, 0),
        ({"repetition": 1, "seed": 1}, 0),
        ({"world_size": 4}, 0),
        ({"variant": "control"}, 0),
    ],
)
def test_a_job_that_is_in_two_runs_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: dict[str, Any], code: int
) -> None:
    first = write_run(tmp_path / "1", [job("a"), job("b")], shard=(1, 1))
    again = write_run(tmp_path / "2", [job("c"), job("a", **more)], shard=(1, 1))
    assert merged(first, again, "-o", tmp_path / "whole") == code
    if code:
        told = capsys.readouterr().err
        assert f"a fault (gloo, local) is in both {first} and {again}." in told
        assert "leave one of the two runs out" in told


def test_a_run_that_is_given_twice_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path / "1", [job("a"), job("b")])
    assert merged(run, run, "-o", tmp_path / "whole") == 64
    assert "a fault (gloo, local) and 1 more jobs are in both" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name, version, told",
    [
        ("hanglab", "0.2.0", "several versions of hanglab: 0.1.0 in"),
        ("torch", "2.14.0+cpu", "several versions of torch: 2.13.0 in"),
        ("torch", None, "an unknown one in"),
    ],
)
def test_other_versions_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, version: str | None, told: str
) -> None:
    first = write_run(tmp_path / "1", [job("a")])
    other = write_run(tmp_path / "2", [job("b")], **{name: version})
    assert merged(first, other, "-o", tmp_path / "whole") == 64
    error = capsys.readouterr().err
    assert told in error and "hanglab history" in error


@pytest.mark.parametrize(
    "text, told",
    [
        ("", "cannot be read"),
        ("{", "cannot be read"),
        ("[]", "cannot be read"),
        ("[" * 100_000, "cannot be read"),
        ("{}", "is without a schema, not hanglab.run/1"),
        ('{"schema": "hanglab.mutation/1"}', "is hanglab.mutation/1"),
        ('{"schema": "hanglab.run/1", "results": [{"scenario": 1}]}', "cannot be read"),
        ('{"schema": "hanglab.run/1", "shard": {"number": 1, "of": 1e18}}', "cannot be read"),
        (
            '{"schema": "hanglab.run/1", "results": [{"scenario": "a", "outcome": "good"}]}',
            "Invalid enum value 'good'",
        ),
    ],
)
def test_foreign_files_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, told: str
) -> None:
    (tmp_path / "results.json").write_text(text)
    for given in (tmp_path, tmp_path / "results.json"):
        assert merged(given, "-o", tmp_path / "whole") == 4
        error = capsys.readouterr().err
        assert told in error and "results.json" in error and "Traceback" not in error


def test_folders_without_results_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = tmp_path / "runs"
    write_run(runs / "1", [job("a")])
    (runs / "latest").symlink_to("1")
    for given, told in (
        (tmp_path, "is no run: there is no results.json in it."),
        (tmp_path / "no", "There is no"),
        (runs, "One of the runs in it may be meant"),
    ):
        assert merged(given, "-o", tmp_path / "whole") == 4
        assert told in capsys.readouterr().err


def test_the_parts_that_pytest_leaves_of_several_backends_are_one_run(tmp_path: Path) -> None:
    write_run(tmp_path / "run" / "gloo-local-2", [job("a")])
    write_run(tmp_path / "run" / "gloo-local-4", [job("a", world_size=4)])
    assert merged(tmp_path / "run", "-o", tmp_path / "whole") == 0
    assert len(read_run(tmp_path / "whole" / "results.json").run.results) == 2


def test_junit_files_are_united(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [write_run(tmp_path / letter, [job(letter)]) for letter in "ab"]
    first = write_junit(tmp_path / "1.xml", "a[fault]", "é")
    second = write_junit(tmp_path / "2.xml", "b[fault]")
    own = write_junit(tmp_path / "3.xml", "b[fault]", scenario=False)
    whole = tmp_path / "whole"
    options = [word for path in (first, second, own) for word in ("--junit", path)]
    assert merged(*runs, "-o", whole, *options) == 0
    root = ElementTree.parse(whole / "junit.xml").getroot()
    counts = {"tests": "4", "failures": "3", "errors": "0", "skipped": "0", "time": "6.000"}
    assert root.attrib == {"name": "hanglab", **counts}
    names = [case.get("name") for case in root.iter("testcase")]
    assert names == ["a[fault]", "é", "b[fault]", "b[fault]"]
    bad = tmp_path / "bad.xml"
    for text, told in (
        ("<testsuites>", "cannot be read"),
        ("<html/>", "its root is html"),
        ('<testsuite tests="many"/>', "A count in"),
    ):
        bad.write_text(text)
        assert merged(*runs, "-o", tmp_path / "new", "--junit", bad) == 4
        assert told in capsys.readouterr().err
    for twice in ([first, first], [first, write_junit(tmp_path / "4.xml", "a[fault]")]):
        options = [word for path in twice for word in ("--junit", path)]
        assert merged(*runs, "-o", tmp_path / "new", *options) == 64
        assert "a[fault] is in both" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_json_and_the_page_of_a_job(
    shards: list[Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "page.md"))
    assert merged(*shards, "-o", tmp_path / "whole", "--json") == 1
    assert json.loads(capsys.readouterr().out)["counts"]["gloo"]["pass"] == 3
    assert "5 jobs" in (tmp_path / "page.md").read_text()


@pytest.mark.long
@pytest.mark.slow
def test_real_shards_of_the_command_and_of_pytest(
    tmp_path: Path,
    kept_launcher: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    for name in "xy":
        write(tmp_path, f"hanglab_{name}.py", SOUND.format(name=name))
    monkeypatch.chdir(tmp_path)
    folders = []
    for number in (1, 2):
        assert main(["run", "hanglab_x.py", "hanglab_y.py", "--shard", f"{number}/2"]) == 0
        folders.append((tmp_path / "runs" / "latest").resolve())
    assert merged(*folders, "-o", "whole") == 0
    run = read_run(tmp_path / "whole" / "results.json").run
    found = [(one.scenario, one.variant, one.outcome.value) for one in run.results]
    assert found == [(name, kind, "pass") for name in "xy" for kind in ("fault", "control")]
    assert all(one.code and Path(str(one.artifacts), "case").is_dir() for one in run.results)
    assert main(["report", "whole", "--jobs", "all"]) == 0

    done = run_pytest(
        tmp_path, "--hanglab-shard=1/2", "--hanglab-artifacts=kept", "--junitxml=1.xml"
    )
    assert done.code == 0, done.out
    capsys.readouterr()
    shard = tmp_path / "kept" / "latest"
    assert merged(shard, "-o", "part") == 4
    assert "Shard 2/2 (gloo, local) is missing." in capsys.readouterr().err
    # A shard of pytest's is one of the same suite as the command's.
    assert merged(shard, folders[1], "-o", "mixed", "--junit", "1.xml") == 0
    assert main(["history", "whole", str(shard), "--all"]) == 0
    assert "x" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words, told",
    [
        (["--shard", "3/2"], "3/2 is no shard"),
        (["--shard", "one"], "one is no shard"),
        (["--shard", "1/2", "--quick"], "machines would not agree"),
    ],
)
def test_shards_that_make_no_sense_are_told(
    words: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *words]) == 64
    assert told in capsys.readouterr().err
