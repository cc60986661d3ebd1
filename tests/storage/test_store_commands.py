"""Cases in a store: sent, read by their URL, and what is said where the store does not do it."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest
from s3_server import S3Server

from hanglab.harness.cli import main
from hanglab.harness.storage import transfers
from hanglab.recorder.case.folders import MANIFEST

ONE = "s3://hangs/cases/one"


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers, "PAUSES_S", (0.01, 0.01))


def verdict_of(source: str | Path, capsys: pytest.CaptureFixture[str]) -> object:
    capsys.readouterr()
    assert main(["analyze", str(source), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def told(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What a command that fails says."""
    capsys.readouterr()
    assert main([*words]) in (4, 64)
    return capsys.readouterr().err


def copies() -> list[str]:
    return [
        name for name in os.listdir(tempfile.gettempdir()) if name.startswith("hanglab-fetched")
    ]


def test_a_case_is_sent_and_has_the_same_verdict_there(
    s3: S3Server, case: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = copies()
    assert main(["upload", str(case), ONE]) == 0
    files = sum(path.is_file() for path in case.rglob("*"))
    assert capsys.readouterr().out.startswith(f"{ONE}: {files} files, ")
    assert verdict_of(ONE, capsys) == verdict_of(case, capsys)
    assert main(["upload", str(case), ONE]) == 0
    assert f"{files} of them lay there" in capsys.readouterr().out
    assert s3.faults.count("PUT") == files
    assert copies() == before


def test_words_name_the_url_and_not_the_copy(
    s3: S3Server, case: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["upload", str(case), ONE]) == 0
    assert main(["analyze", ONE]) == 0
    assert "hanglab-fetched" not in capsys.readouterr().out
    (case / "job.json").write_text("{")
    assert main(["upload", str(case), "s3://hangs/broken"]) == 0
    capsys.readouterr()
    main(["stragglers", "s3://hangs/broken"])
    said = capsys.readouterr()
    assert "hanglab-fetched" not in said.err + said.out


def test_every_command_that_reads_a_case_reads_one_in_a_store(
    s3: S3Server, case: Path, tmp_path: Path
) -> None:
    assert main(["upload", str(case), ONE]) == 0
    for name, *options in (
        ["entries"],
        ["trace", "-o", "hang.pftrace"],
        ["pack", "-o", "case.tar.gz"],
        ["redact", "-o", "redacted"],
        ["stragglers"],
        ["report", "-o", "page.html"],
    ):
        out = [word if word == "-o" else str(tmp_path / word) for word in options]
        assert main([name, ONE, *out]) == 0
        assert not out or Path(out[-1]).exists()


@pytest.mark.parametrize("words", [
    ["replay"], ["minimise"], ["unpack"], ["eval", "--corpus"], ["eval", "--mutants"],
    ["corpus", "add", "ours", "--name", "a", "--status", "hung", "--origin", "o", "--licence", "l"],
])  # fmt: skip
def test_other_commands_look_for_what_a_url_names(
    s3: S3Server, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert "s3://hangs/nothing leads to nothing" in told(capsys, *words, "s3://hangs/nothing")


def test_a_packed_case_is_unpacked_from_a_store(s3: S3Server, case: Path, tmp_path: Path) -> None:
    (tmp_path / "packed").mkdir()
    assert main(["pack", str(case), "-o", str(tmp_path / "packed" / "one.case.tar.gz")]) == 0
    assert main(["upload", str(tmp_path / "packed"), ONE]) == 0
    out = tmp_path / "unpacked"
    assert main(["unpack", f"{ONE}/one.case.tar.gz", "-o", str(out)]) == 0
    assert list(out.rglob("job.json"))


def test_a_store_that_is_busy_for_a_moment_is_asked_again(
    s3: S3Server, case: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refused: set[tuple[str, str]] = set()

    def first_time(method: str, path: str) -> bool:
        asked = (method, path)
        once = path.endswith("job.json") and asked not in refused
        refused.add(asked)
        return once

    s3.faults.refuse = first_time
    assert main(["upload", str(case), ONE]) == 0
    assert verdict_of(ONE, capsys) == verdict_of(case, capsys)


def test_an_upload_that_ends_in_the_middle_goes_on_where_it_was(
    s3: S3Server, case: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    away = {"is": False}

    def refuse(method: str, path: str) -> bool:
        away["is"] |= s3.faults.count("PUT") > 5
        return away["is"]

    s3.faults.refuse = refuse
    said = told(capsys, "upload", str(case), ONE)
    assert re.search(r"[0-9]+ of [0-9]+ files did not get to s3://hangs/cases/one", said)
    assert f"Nothing is lost: `hanglab upload {case} {ONE}` goes on." in said
    s3.faults.refuse = lambda method, path: False
    # Without its manifest nobody takes it for whole.
    assert not any(path.endswith(MANIFEST) and m == "PUT" for m, path in s3.faults.seen)
    here = set(_files(s3))
    s3.faults.seen.clear()
    assert main(["upload", str(case), ONE]) == 0
    sent = [path for method, path in s3.faults.seen if method == "PUT"]
    assert here and not here & set(sent)
    assert sent[-1].endswith(MANIFEST)
    assert verdict_of(ONE, capsys) == verdict_of(case, capsys)


def _files(s3: S3Server) -> list[str]:
    """Paths of what is stored, as requests name them."""
    import boto3

    found = boto3.client("s3").list_objects_v2(Bucket="hangs").get("Contents", [])
    return [f"/hangs/{one['Key']}" for one in found]


def test_what_the_store_has_lost_is_no_success(
    s3: S3Server, case: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    s3.faults.lose = lambda method, path: method == "PUT" and path.endswith("job.json")
    said = told(capsys, "upload", str(case), ONE)
    assert "job.json did not arrive as it was sent" in said


def test_a_file_that_ends_early_is_fetched_again_or_nothing_is(
    s3: S3Server, case: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["upload", str(case), ONE]) == 0
    before, seen = copies(), []

    def once(method: str, path: str) -> bool:
        meant = method == "GET" and path.endswith("job.json")
        seen.extend([path] * meant)
        return meant and len(seen) == 1

    s3.faults.cut = once
    assert verdict_of(ONE, capsys) == verdict_of(case, capsys)
    assert len(seen) > 1
    s3.faults.cut = lambda method, path: method == "GET" and path.endswith("job.json")
    assert "cannot be read" in told(capsys, "analyze", ONE)
    assert copies() == before


def test_another_case_is_not_overwritten(
    s3: S3Server, case: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["upload", str(case), ONE]) == 0
    (case / "job.json").write_text((case / "job.json").read_text() + " ")
    said = told(capsys, "upload", str(case), ONE)
    assert "holds something else already (job.json), and nothing is overwritten" in said


@pytest.mark.parametrize("store", ["s3://hangs/dumps", "memory://dumps", "file://TMP/dumps"])
def test_dumps_of_another_job_are_not_overwritten(
    s3: S3Server, tmp_path: Path, capsys: pytest.CaptureFixture[str], store: str
) -> None:
    """They have no manifest, the same names, and may be of one size."""
    url = store.replace("TMP", str(tmp_path))
    for name, content in (("mine", b"first"), ("theirs", b"other"), ("longer", b"first and more")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rank_0").write_bytes(content)
    assert main(["upload", str(tmp_path / "mine"), url]) == 0
    said = told(capsys, "upload", str(tmp_path / "theirs"), url)
    assert "holds something else already (rank_0), and nothing is overwritten" in said
    # What ended in the middle goes on.
    assert main(["upload", str(tmp_path / "longer"), url]) == 0
    assert "1 of them lay there" not in capsys.readouterr().out


def test_a_full_disk_here_is_no_fault_of_the_store(s3: S3Server, case: Path) -> None:
    """No file may grow far, as on a full disk."""
    assert main(["upload", str(case), ONE]) == 0
    s3.faults.seen.clear()
    ended = subprocess.run(
        [sys.executable, "-m", "hanglab.harness.cli", "analyze", ONE],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)),
    )
    assert ended.returncode == 4
    assert ended.stderr.startswith("hanglab: nothing more can be written: ")
    # It is not asked for again.
    asked = [path for method, path in s3.faults.seen if method == "GET"]
    assert asked.count("/hangs/cases/one/job.json") < 2


def test_a_file_costs_one_request(s3: S3Server, case: Path) -> None:
    assert main(["upload", str(case), ONE]) == 0
    s3.faults.seen.clear()
    assert main(["entries", ONE]) == 0
    of_files = [path for _, path in s3.faults.seen if path.startswith("/hangs/cases/one/")]
    assert "/hangs/cases/one/job.json" in of_files
    assert len(of_files) == len(set(of_files))


def test_names_that_lead_out_of_their_folder_are_refused(
    s3: S3Server, capsys: pytest.CaptureFixture[str]
) -> None:
    import boto3

    boto3.client("s3").put_object(Bucket="hangs", Key="bad/../../up", Body=b"x")
    assert "whose name leads out of its folder" in told(capsys, "analyze", "s3://hangs/bad")


@pytest.mark.parametrize(("url", "words"), [
    ("s3://hangs/nothing", "leads to nothing"),
    ("s3://no-such-bucket/case", "leads to nothing"),
    ("gs://bucket/case", "needs a package that is not installed.*pip install gcsfs"),
    ("such://bucket/case", "is no URL that can be read: Protocol not known: such"),
    ("zip://no/such.zip", "leads to nothing"),
])  # fmt: skip
def test_what_is_not_there_is_said_in_a_sentence(
    s3: S3Server, capsys: pytest.CaptureFixture[str], url: str, words: str
) -> None:
    assert re.search(words, told(capsys, "analyze", url), re.DOTALL)


def test_a_store_that_is_away_and_credentials_that_are_missing(
    s3: S3Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    assert "Could not connect" in told(capsys, "analyze", "s3://hangs/away")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    monkeypatch.setenv("HOME", "/nonexistent")
    import fsspec

    fsspec.get_filesystem_class("s3").clear_instance_cache()
    assert re.search("needs credentials|is refused", told(capsys, "analyze", "s3://hangs/away2"))


def test_credentials_that_fail_are_a_sentence_and_the_case_stays(
    s3: S3Server, case: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = verdict_of(case, capsys)
    assert main(["upload", str(case), ONE]) == 0
    s3.faults.deny = lambda method, path: True
    for words in (["analyze", ONE], ["upload", str(case), "s3://hangs/cases/denied"]):
        sentence, *advice = told(capsys, *words).splitlines()
        assert re.search("is refused|denied|Forbidden", sentence, re.IGNORECASE), sentence
        assert len(advice) <= 1
    assert verdict_of(case, capsys) == expected
    record = ["record", "--out", "s3://hangs/denied", "--", sys.executable, "-c", "print(1)"]
    ran = subprocess.run(
        [sys.executable, "-m", "hanglab.harness.cli", *record], cwd=tmp_path, capture_output=True,
        text=True, timeout=280, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (0, "1\n"), "the job's own code"
    (recorded,) = tmp_path.glob("hanglab-case-*")
    assert f"`hanglab upload {recorded} s3://hangs/denied` goes on" in ran.stderr
    assert "Traceback" not in ran.stderr and (recorded / MANIFEST).exists()


@pytest.mark.parametrize(
    "words",
    [
        ["analyze", ONE],
        ["upload", "{case}", ONE],
        ["watch", "--out", ONE, "--state", "{folder}", "--until-idle", "1"],
        ["record", "--out", ONE, "--", sys.executable, "-c", "open('{folder}/ran', 'w')"],
    ],
    ids=lambda words: words[0],
)
def test_a_url_without_its_extra_is_a_sentence_before_anything_is_done(
    words: list[str],
    case: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "fsspec"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fsspec", None)
    monkeypatch.chdir(tmp_path)
    said = told(capsys, *(word.format(case=case, folder=tmp_path) for word in words))
    assert said.splitlines() == [
        f"hanglab: {ONE} needs fsspec, which is not installed.",
        "  pip install 'hanglab[scale]'",
    ]
    assert not (tmp_path / "ran").exists() and not [*tmp_path.glob("hanglab-case-*")]


def test_other_stores(case: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expected = verdict_of(case, capsys)
    with zipfile.ZipFile(tmp_path / "case.zip", "w") as archive:
        for path in case.rglob("*"):
            archive.write(path, path.relative_to(case.parent))
    assert verdict_of(f"file://{case}", capsys) == expected
    assert verdict_of(f"zip://{tmp_path}/case.zip", capsys) == expected
    assert verdict_of(f"zip://{case.name}::file://{tmp_path}/case.zip", capsys) == expected
    assert main(["upload", str(case), "memory://cases/one"]) == 0
    assert verdict_of("memory://cases/one", capsys) == expected


def test_what_is_recorded_is_sent_and_stays(s3: S3Server, tmp_path: Path) -> None:
    def record(url: str) -> str:
        command = [sys.executable, "-m", "hanglab.harness.cli", "record", "--out", url, "--"]
        command += [sys.executable, "-c", "print('trained')"]
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, timeout=280, check=False
        )
        assert (done.returncode, done.stdout) == (0, "trained\n")
        return done.stderr

    assert "hanglab: sent to s3://hangs/job: " in record("s3://hangs/job")
    (case,) = tmp_path.glob("hanglab-case-*")
    s3.faults.refuse = lambda method, path: True
    said = record("s3://hangs/other")
    other = next(path for path in tmp_path.glob("hanglab-case-*") if path != case)
    assert f"`hanglab upload {other} s3://hangs/other` goes on" in said
    assert (other / MANIFEST).exists()
