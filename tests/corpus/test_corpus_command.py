"""``hanglab corpus``: Cases added without names and with a label, and broken ones named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from hanglab.harness.cli import main
from hanglab.harness.corpus.entries import read_entry, unpack_entry

CORPUS = Path(__file__).parent
LABEL = ["--status", "hung", "--cause", "missing_rank", "--culprits", "2", "--origin", "by hand"]
LABEL += ["--licence", "Apache-2.0"]


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "case"
    unpack_entry(CORPUS, "local/missing_rank.fault", folder)
    return folder


def add(corpus: Path, case: Path, *words: str) -> int:
    return main(["corpus", "add", str(corpus), str(case), *words])


def test_a_case_is_added_without_names_and_judged_right(
    case: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus, out = tmp_path / "ours", tmp_path / "out.json"
    assert add(corpus, case, "--name", "lab/stuck", "--line", "missing_rank.py:27", *LABEL) == 0
    entry = read_entry(corpus, "lab/stuck")
    (truth,) = entry.truth or ()
    assert (truth.status, truth.cause, truth.culprits) == ("hung", "missing_rank", [2])
    assert (truth.lines, truth.file) == ([27], None)
    assert (entry.source, entry.licence) == ("by hand", "Apache-2.0")
    unpack_entry(corpus, "lab/stuck", tmp_path / "unpacked")
    texts = b"".join(path.read_bytes() for path in (tmp_path / "unpacked").rglob("*.json*"))
    assert texts and b"missing_rank" not in texts and b"node0" not in texts
    assert main(["corpus", "check", str(corpus), "--jobs", "1"]) == 0
    command = ["eval", "--corpus", str(corpus), "--json", str(out), "--jobs", "1"]
    assert main([*command, "--min-recall", "1"]) == 0
    score = json.loads(out.read_text())["cases"][0]["scores"]["hanglab"]
    assert score["right"] and score["line_right"]
    assert add(corpus, case, "--name", "lab/stuck", *LABEL) == 64
    assert "already" in capsys.readouterr().err


@pytest.mark.long
def test_bare_dumps_are_added_under_their_ranks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dumps, corpus = tmp_path / "dumps", tmp_path / "ours"
    simulate = ["simulate", "--ranks", "8", "--layout", "hsdp", "--fault", "skip"]
    assert main([*simulate, "--operations", "40", "--out", str(dumps)]) == 0
    truth = json.loads((tmp_path / "dumps.truth.json").read_text())
    (dumps / "notes.txt").write_text("call Alice")
    label = ["--status", "hung", "--cause", "skipped_collective", "--origin", "x"]
    label += ["--licence", "MIT OR Apache-2.0", "--culprits", str(truth["culprits"][0])]
    assert add(corpus, dumps, "--name", "dumps", *label[:-1], "8") == 64
    assert "no rank 8" in capsys.readouterr().err
    assert add(corpus, dumps, "--name", "dumps", *label) == 0
    err = capsys.readouterr().err
    assert "left out: notes.txt" in err and "differs" not in err
    unpack_entry(corpus, "dumps", tmp_path / "unpacked")
    assert {path.name for path in (tmp_path / "unpacked").iterdir()} == {
        f"rank_{rank}" for rank in range(8)
    }
    one = (tmp_path / "unpacked" / "rank_3").stat().st_mtime_ns
    assert one // 1000 == (dumps / "nccl_trace_rank_3").stat().st_mtime_ns // 1000
    command = ["eval", "--corpus", str(corpus), "--jobs", "1", "--min-recall", "1"]
    assert main(command) == 0


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (("--status", "stuck"), "status 'stuck' is none of"),
        (("--cause", "missing_rnak"), "not in the catalogue"),
        (("--culprits", "7"), "no rank 7"),
        (("--culprits", "two"), "no ranks"),
        (("--licence", "free, ask me!"), "no SPDX identifier"),
        (("--origin", " "), "origin is empty"),
        (("--name", "../escaped"), "names no entry"),
        (("--line", "somewhere"), "is no line"),
        (("--status", "healthy"), "a sound job has no cause"),
    ],
)
def test_labels_that_cannot_be_right_are_refused(
    changed: tuple[str, str],
    words: str,
    case: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert add(tmp_path / "ours", case, "--name", "a", *LABEL, *changed) == 64
    assert words in " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert not (tmp_path / "ours").exists()


@pytest.mark.parametrize("lacking", ["--status", "--origin", "--licence", "--name"])
def test_a_label_is_required(lacking: str, case: Path, tmp_path: Path) -> None:
    words = ["--name", "a", *LABEL]
    at = words.index(lacking)
    assert add(tmp_path / "ours", case, *words[:at], *words[at + 2 :]) == 64


def test_each_broken_case_is_named_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = CORPUS / "torch" / "gloo_plain.tar.xz"
    label = json.loads((CORPUS / "torch" / "gloo_plain.json").read_text())
    for name, change in {
        "sound": {},
        "no_licence": {"licence": ""},
        "cause": {"truth": [{"status": "hung", "cause": "no_such_cause"}]},
        "nothing": {"truth": []},
    }.items():
        shutil.copy(whole, tmp_path / f"{name}.tar.xz")
        (tmp_path / f"{name}.json").write_text(json.dumps({**label, **change}))
    shutil.copy(whole, tmp_path / "unlabelled.tar.xz")
    (tmp_path / "alone.json").write_text(json.dumps(label))
    (tmp_path / "cut.tar.xz").write_bytes(whole.read_bytes()[:200])
    (tmp_path / "cut.json").write_text(json.dumps(label))
    assert main(["corpus", "check", str(tmp_path), "--jobs", "1"]) == 1
    *sentences, summary = capsys.readouterr().out.splitlines()
    wrong = ("no_licence", "cause", "nothing", "unlabelled", "alone", "cut")
    assert len(sentences) == len(wrong) and all(one.endswith(".") for one in sentences)
    for name in wrong:
        assert sum(name in one for one in sentences) == 1, name
    assert summary == f"{tmp_path}: 7 Cases, 6 to mend"


def test_a_corpus_that_is_none_is_refused(tmp_path: Path) -> None:
    assert main(["corpus", "check", str(tmp_path)]) == 4
    assert main(["corpus", "check", str(tmp_path / "none")]) == 4
    assert add(tmp_path / "ours", tmp_path / "none", "--name", "a", *LABEL) == 64
    assert add(tmp_path / "ours", tmp_path, "--name", "a", *LABEL) == 4
