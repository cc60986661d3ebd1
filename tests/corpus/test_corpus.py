"""The corpus is complete, and the analyzer says of each entry what it has said before."""

from __future__ import annotations

import copy
import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from hanglab.analyzer.verdict import Cause, Status
from hanglab.harness.corpus.comparison import Agreement, compare_with_truth, differences
from hanglab.harness.corpus.entries import (
    CorpusEntry,
    Truth,
    add_entry,
    entry_names,
    read_entry,
    unpack_entry,
    write_entry,
)
from tools.corpus.__main__ import CORPUS, check
from tools.corpus.damage import add_damaged
from tools.corpus.trials import add_trials
from tools.corpus.zoo import add_runs

MOST_BYTES = 8_000_000
FAULT = "local/process_frozen.fault"


def copy_entries(corpus: Path, names: Iterable[str]) -> None:
    for name in names:
        for path in CORPUS.glob(f"{name}.*"):
            target = corpus / path.relative_to(CORPUS)
            target.parent.mkdir(exist_ok=True)
            shutil.copy(path, target)


def test_verdicts_on_a_fifth_are_those_accepted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`make corpus-check`, which `.ci/run` calls, compares all of them."""
    copy_entries(tmp_path, entry_names(CORPUS)[::5])
    assert check(tmp_path, jobs=os.cpu_count() or 1) == 0, capsys.readouterr().out


def test_every_entry_says_its_truth_origin_and_licence() -> None:
    names = entry_names(CORPUS)
    texts = {str(path.relative_to(CORPUS).with_suffix("")) for path in CORPUS.rglob("*.json")}
    assert texts == set(names)
    for name in names:
        entry = read_entry(CORPUS, name)
        assert entry.source and entry.licence and entry.verdict is not None, name
        for truth in entry.truth or ():
            assert Status(truth.status) and (truth.cause is None or Cause(truth.cause)), name
    origins = {name.partition("/")[0] for name in names}
    recorded = {"local", "torchrun", "nccl-emulated"}
    written = {"rendered", "torch", "damaged", "hostile", "fuzz", "scripts", "strangers"}
    assert recorded | written == origins


def test_the_corpus_stays_small() -> None:
    kept = [one for one in CORPUS.rglob("*") if one.is_file() and one.suffix != ".pyc"]
    assert sum(path.stat().st_size for path in kept) < MOST_BYTES


@pytest.mark.slow
def test_a_changed_verdict_is_reported_field_by_field_until_accepted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy_entries(tmp_path, [FAULT, "torch/gloo_plain"])
    entry = read_entry(tmp_path, FAULT)
    assert entry.verdict is not None
    frozen = copy.deepcopy(entry.verdict)
    entry.verdict["confidence"] = 0.25
    entry.verdict["collective"]["seq"] = 3
    entry.verdict["evidence"].append({"source": "stack", "rank": 0, "detail": "gone"})
    write_entry(tmp_path, FAULT, entry)

    assert check(tmp_path, jobs=1) == 1
    out = capsys.readouterr().out.splitlines()
    assert out[0] == f"{FAULT}:"
    assert f"    confidence: 0.25 -> {frozen['confidence']}" in out
    assert "    collective.seq: 3 -> 15" in out
    gone = {"source": "stack", "rank": 0, "detail": "gone"}
    assert f"    evidence[1]: {json.dumps(gone)} -> absent" in out
    assert len([line for line in out if line.startswith("    ")]) == 3
    assert out[-1] == "2 entries, 1 differ"

    assert check(tmp_path, jobs=1, accept=True) == 0
    assert f"{FAULT}: accepted" in capsys.readouterr().out
    assert not list(differences(frozen, read_entry(tmp_path, FAULT).verdict))
    assert check(tmp_path, jobs=1) == 0


def test_lists_of_numbers_are_compared_whole() -> None:
    assert list(differences({"culprits": [1, 2]}, {"culprits": [2]})) == ["culprits: [1, 2] -> [2]"]


def test_a_refusal_is_frozen_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "dumps"
    folder.mkdir()
    (folder / "rank_0").write_bytes(b"\x01\x02\x03")  # a text would be a log
    corpus = tmp_path / "corpus"
    add_entry(corpus, "damaged/nonsense", folder, CorpusEntry(source="x", licence="x", truth=None))
    assert check(corpus, jobs=1) == 1
    assert check(corpus, jobs=1, accept=True) == 0
    assert check(corpus, jobs=1) == 0
    answer = read_entry(corpus, "damaged/nonsense").verdict
    assert answer is not None and set(answer) == {"error", "advice"}
    assert str(tmp_path) not in answer["error"]


def test_a_corpus_without_entries_is_no_success(tmp_path: Path) -> None:
    assert check(tmp_path / "misspelt", jobs=1) == 1


def test_files_and_their_times_come_back(tmp_path: Path) -> None:
    folder = tmp_path / "dumps"
    (folder / "host").mkdir(parents=True)
    for number, path in enumerate((folder / "rank_0", folder / "host" / "rank_1")):
        path.write_bytes(bytes([number]) * 9)
        os.utime(path, (1_700_000_000.25 + number,) * 2)
    add_entry(tmp_path, "a/b", folder, CorpusEntry(source="x", licence="x", truth=None))
    unpack_entry(tmp_path, "a/b", tmp_path / "again")
    for path in ("rank_0", "host/rank_1"):
        one, other = folder / path, tmp_path / "again" / path
        assert one.read_bytes() == other.read_bytes()
        assert one.stat().st_mtime == other.stat().st_mtime


@pytest.mark.parametrize(
    ("backend", "origin"), [("gloo", "local"), ("nccl-emulated", "nccl-emulated")]
)
def test_jobs_that_showed_their_fault_become_entries(
    tmp_path: Path, backend: str, origin: str
) -> None:
    run = {
        "scenario": "crash",
        "variant": "fault",
        "repetition": 0,
        "seed": 7,
        "backend": backend,
        "launcher": "local",
        "world_size": 2,
        "expected": {
            "status": "failed",
            "cause": "crash",
            "culprits": [1],
            "also": [{"status": "slow", "cause": "slow_input", "culprits": [0]}],
        },
        "outcome": "wrong verdict",
    }
    for number, outcome in enumerate(("wrong verdict", "not reproduced", "harness error")):
        folder = tmp_path / "crash" / "fault" / str(number)
        (folder / "case").mkdir(parents=True)
        (folder / "case" / "job.json").write_text("{}")
        text = json.dumps({**run, "repetition": number, "outcome": outcome})
        (folder / "truth.json").write_text(text)
    corpus = tmp_path / "corpus"
    assert add_runs(corpus, tmp_path) == [f"{origin}/crash.fault"] == entry_names(corpus)
    entry = read_entry(corpus, f"{origin}/crash.fault")
    assert entry.truth == [Truth("failed", "crash", [1]), Truth("slow", "slow_input", [0])]
    assert entry.source.endswith(f"scenario crash: local launcher, {backend}, 2 ranks, seed 7")


def test_trials_are_rendered_alike_every_time(tmp_path: Path) -> None:
    first, again = tmp_path / "first", tmp_path / "again"
    names = add_trials(first, range(4))
    assert names and names == add_trials(again, range(4))
    for name in names:
        for corpus in (first, again):
            unpack_entry(corpus, name, tmp_path / corpus.name / "dumps")
        files = [path for path in (first / "dumps").rglob("*") if path.is_file()]
        assert files
        for path in files:
            same = again / "dumps" / path.relative_to(first / "dumps")
            assert path.read_bytes() == same.read_bytes()
        shutil.rmtree(first / "dumps")
        shutil.rmtree(again / "dumps")


def test_damage_is_named_and_leaves_the_truth_and_the_other_files(tmp_path: Path) -> None:
    copy_entries(tmp_path, [FAULT, "torch/gloo_plain"])
    names = add_damaged(tmp_path, range(12))
    assert len(names) == 12 == len(entry_names(tmp_path)) - 2
    for number, name in enumerate(names):
        entry = read_entry(tmp_path, name)
        of, _, files = entry.source.replace(": ", ", ", 1).split(", ", 2)
        whole, damaged = tmp_path / f"whole{number}", tmp_path / f"damaged{number}"
        unpack_entry(tmp_path, of, whole)
        unpack_entry(tmp_path, name, damaged)
        changed = {
            path.relative_to(whole).as_posix()
            for path in whole.rglob("*")
            if path.is_file() and not _has_same(damaged / path.relative_to(whole), path)
        }
        # A cut may leave all of a file, and an empty one has nothing to lose.
        assert changed <= set(files.split(", "))
        assert entry.verdict is None
        assert entry.truth == read_entry(tmp_path, of).truth
    assert check(tmp_path, jobs=2, accept=True) == 0


def _has_same(path: Path, other: Path) -> bool:
    return path.exists() and path.read_bytes() == other.read_bytes()


HUNG: dict[str, Any] = {
    "status": "hung",
    "cause": "size_mismatch",
    "culprits": [2],
    "confidence": 0.9,
}


@pytest.mark.parametrize(
    ("answer", "truths", "agreement"),
    [
        (HUNG, [Truth("hung", "size_mismatch", [2])], Agreement.AGREES),
        (HUNG, [Truth("hung", None, [2])], Agreement.AGREES),
        (HUNG, [Truth("hung", "crash", [1]), Truth("hung", None, [2])], Agreement.AGREES),
        (HUNG, [Truth("hung", "dtype_mismatch", [2])], Agreement.DIFFERS),
        (HUNG, [Truth("hung", "size_mismatch", [1])], Agreement.DIFFERS),
        (HUNG, [Truth("healthy")], Agreement.DIFFERS),
        (HUNG, None, Agreement.NO_TRUTH),
        (
            {**HUNG, "culprits": [1, 2], "confidence": 0.5},
            [Truth("hung", "crash", [2])],
            Agreement.CANDIDATES,
        ),
        ({**HUNG, "culprits": [1, 2]}, [Truth("hung", "crash", [2])], Agreement.DIFFERS),
        ({"error": "x", "advice": "y"}, [Truth("healthy")], Agreement.INCONCLUSIVE),
        (
            {"status": "inconclusive", "cause": None, "culprits": [], "confidence": 0.0},
            [Truth("hung", None, [2])],
            Agreement.INCONCLUSIVE,
        ),
    ],
)
def test_verdicts_are_scored_by_the_truth(
    answer: dict[str, Any], truths: list[Truth] | None, agreement: Agreement
) -> None:
    assert compare_with_truth(answer, truths) is agreement
