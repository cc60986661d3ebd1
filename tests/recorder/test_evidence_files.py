"""The table of evidence files: a row is all that a new kind of evidence needs besides its use."""

from __future__ import annotations

import fnmatch
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import msgspec
import pytest

from hanglab.analyzer import engine
from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.proposal import Proposal, propose
from hanglab.analyzer.verdict import Cause, Status
from hanglab.recorder.agent import snapshots
from hanglab.recorder.archive.packing import pack, unpack
from hanglab.recorder.archive.redaction import redact
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case import folders
from hanglab.recorder.case.file_kinds import (
    JsonFile,
    JsonLines,
    JsonList,
    Redaction,
    Scope,
)
from hanglab.recorder.case.reader import CaseReader
from hanglab.recorder.case.records import Clock, Exit, JobRecord, Python
from hanglab.recorder.case.text_kinds import DataPath, Public
from hanglab.recorder.case.writer import write, write_bytes, write_manifest
from tools.case_format import PAGE, named_patterns, with_listing, with_new_files


class Lock(msgspec.Struct):
    """A record that no release has: a lock that a rank holds."""

    path: DataPath
    mode: Public
    owner: str
    since_s: float


LOCKS = JsonList("locks.json", Scope.RANK, "locks it holds", lambda: Lock, snapshot=True)
ATTEMPTS = JsonLines("attempts.jsonl", Scope.RANK, "locks asked for", lambda: Lock, of_capture=True)
HELD = Lock("/data/secret/shard7.lock", "exclusive", "alice", 3.5)
LATER = Lock("/data/secret/shard8.lock", "shared", "alice", 0.5)


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Case whose rank held one lock at the capture and another one later."""
    monkeypatch.setattr(files, "LOCKS", LOCKS, raising=False)
    monkeypatch.setattr(files, "ATTEMPTS", ATTEMPTS, raising=False)
    folder = folders.rank_folder(tmp_path / "case", "host", 0)
    write(folder, LOCKS, [HELD])
    snapshots.keep_documents(folder)
    write(folder, LOCKS, [LATER])
    for lock in (HELD, LATER):
        write(folder, ATTEMPTS, [lock])
    write_manifest(tmp_path / "case", "test")
    return tmp_path / "case"


def test_a_row_is_written_and_read_as_it_was_then_and_is_now(case: Path) -> None:
    (rank,) = CaseReader(case).ranks
    assert rank.read(LOCKS) == [LATER]
    assert rank.as_captured.read(LOCKS) == [HELD]
    assert rank.as_captured.read(ATTEMPTS) == rank.read(ATTEMPTS) == [HELD, LATER]
    assert rank.problems == []


def held_too_long(facts: CaseFacts) -> list[Proposal]:
    """A heuristic that reads the new file, and nothing else."""
    held = [rank for rank, view in facts.ranks.items() if view.read(LOCKS)]
    return [
        propose(
            facts, Cause.PYTHON_DEADLOCK, held,
            status=Status.HUNG, confidence=0.9, summary="It holds a lock.",
        )
    ]  # fmt: skip


def test_a_row_has_its_heuristic(case: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "heuristics", lambda: (("held_too_long", held_too_long),))
    verdict = engine.analyze(case)
    assert (verdict.cause, verdict.culprits) == (Cause.PYTHON_DEADLOCK, [0])


def test_a_row_is_packed(case: Path, tmp_path: Path) -> None:
    pack(case, tmp_path / "packed.tgz")
    unpack(tmp_path / "packed.tgz", tmp_path / "copy")
    (rank,) = CaseReader(tmp_path / "copy").ranks
    assert (rank.read(LOCKS), rank.as_captured.read(LOCKS)) == ([LATER], [HELD])


def test_a_row_is_redacted_as_its_fields_say(case: Path, tmp_path: Path) -> None:
    assert redact(CaseReader(case), tmp_path / "copy") == []
    (rank,) = CaseReader(tmp_path / "copy").ranks
    (held,), (later,) = rank.as_captured.read(LOCKS), rank.read(LOCKS)
    assert (held.mode, later.mode, held.since_s) == ("exclusive", "shared", 3.5)
    assert held.path != later.path and rank.read(ATTEMPTS) == [held, later]
    assert held.owner == "", "what nobody has thought about tells nothing"
    for path in (tmp_path / "copy").rglob("*.json*"):
        assert b"secret" not in path.read_bytes() and b"alice" not in path.read_bytes()


def test_a_row_goes_with_its_capture(case: Path) -> None:
    (rank,) = CaseReader(case).ranks
    snapshots.forget(rank.folder)
    assert [path.name for path in rank.folder.iterdir()] == [LOCKS.name]


def test_damage_is_a_problem_of_its_file(case: Path) -> None:
    (rank,) = CaseReader(case).ranks
    (rank.folder / LOCKS.name).write_text("[{}]")
    with (rank.folder / ATTEMPTS.name).open("a") as file:
        file.write("{}\n")
    assert (rank.read(LOCKS), rank.read(ATTEMPTS)) == ([], [HELD, LATER])
    (locks, attempts) = rank.problems
    assert locks[0].name == LOCKS.name and "is damaged" in locks[1]
    assert attempts[0].name == ATTEMPTS.name and "line 3 is damaged" in attempts[1]


def test_a_file_is_asked_of_the_folder_that_it_lies_in(case: Path) -> None:
    with pytest.raises(ValueError, match=r"exit\.json is a file of each rank"):
        CaseReader(case).hosts["host"].read(files.EXIT)


#: Reads records of types that nobody has read before in four threads at once, again and again.
_READS = """
import sys, threading
import msgspec
from hanglab.recorder.case.file_kinds import JsonDocument, Redaction, Scope

sys.setswitchinterval(1e-6)
for number in range(60):
    inner = msgspec.defstruct("Inner", [(f"field{n}", int | str) for n in range(30)])
    outer = msgspec.defstruct("Outer", [(f"field{n}", list[inner]) for n in range(10)])
    names = ",".join(f'"field{n}":1' for n in range(30))
    data = ("{" + ",".join(f'"field{n}":[{{{names}}}]' for n in range(10)) + "}").encode()
    row = JsonDocument("one.json", Scope.JOB, "", lambda: outer, redaction=Redaction.FIELDS)
    begin = threading.Barrier(4)
    found = []

    def read():
        begin.wait()
        found.append(row.parse(data, found.append))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(isinstance(one, outer) for one in found), found
"""


def test_two_jobs_are_read_at_the_same_time() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _READS], capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr


def test_names_are_unique_in_their_folder() -> None:
    for scope in Scope:
        names = [name for file in files.evidence_files(scope) for name in file.names]
        assert len(set(names)) == len(names)


def test_hosts_of_a_job_are_redacted_as_their_folders_are(tmp_path: Path) -> None:
    job = JobRecord(1, Clock(1, 2), clocks_ahead_ns={"node.example.org": 7})
    write(tmp_path / "case", files.JOB, job)
    folder = folders.rank_folder(tmp_path / "case", "node.example.org", 0)
    write(folder, files.EXIT, Exit(Clock(1, 2), code=0))
    assert redact(CaseReader(tmp_path / "case"), tmp_path / "copy") == []
    copy = CaseReader(tmp_path / "copy")
    assert copy.job is not None and copy.job.clocks_ahead_ns == {"host1": 7}
    assert list(copy.hosts) == ["host1"]


def test_every_file_that_a_redacted_copy_lacks_is_named(tmp_path: Path) -> None:
    case = tmp_path / "case"
    left_out = [file for file in files.evidence_files() if file.redaction is Redaction.LEFT_OUT]
    assert {file.scope for file in left_out} == {Scope.HOST, Scope.RANK}
    parents = {
        Scope.HOST: folders.host_folder(case, "host"),
        Scope.RANK: folders.rank_folder(case, "host", 0),
    }
    paths = [parents[file.scope] / file.name for file in left_out]
    for path in paths:
        write_bytes(path, b"alice")
    expected = {f"{path.relative_to(case)}: not needed for the verdict" for path in paths}
    assert set(redact(CaseReader(case), tmp_path / "copy")) == expected
    copied = [path.name for path in (tmp_path / "copy").rglob("*") if path.is_file()]
    assert copied == [folders.MANIFEST]


def plain_texts(type_: Any, at: str) -> Iterator[str]:
    """Places in a type where a text says nothing of its kind."""
    if type_ is str:
        yield at
    elif isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        # A copy tells where an interpreter's code lies by roots of its own.
        if type_ is not Python:
            for field in msgspec.structs.fields(type_):
                yield from plain_texts(field.type, f"{type_.__name__}.{field.name}")
    elif get_origin(type_) is not Annotated:
        for argument in get_args(type_):
            yield from plain_texts(argument, at)


def test_each_text_says_what_a_copy_without_names_may_tell_of_it() -> None:
    by_field = [file for file in files.evidence_files() if file.redaction is Redaction.FIELDS]
    assert len(by_field) > 15
    found: set[str] = set()
    for file in by_field:
        assert isinstance(file, JsonFile), file.name
        found.update(plain_texts(file.record(), file.name))
    # Left out: options of a program are its user's.
    assert found == {"RankProcess.argv"}


def test_the_documentation_lists_the_table() -> None:
    page = PAGE.read_text()
    assert page == with_listing(page), "run python -m tools.case_format"


def test_a_new_file_is_explained_by_its_record() -> None:
    """Of a page that lacks a file, its line and its section are written; all else stays."""
    page = PAGE.read_text()
    assert with_new_files(page) == page
    before, _, rest = page.partition("\n## file_locks.jsonl")
    lacking = f"{before}{rest[rest.index('## descriptor_waits') - 1 :]}"
    lacking = lacking.replace("`file_locks.jsonl`, ", "")
    written = with_new_files(lacking)
    assert "| `file_locks.jsonl` | agent | at the capture |\n" in written
    section = written.split("\n## file_locks.jsonl\n")[1]
    assert "a lock of a file that a process of the rank waits for" in section
    assert "| `kind` | FLOCK, POSIX or LEASE |\n" in section
    assert all(f"`{key}`" in section for key in ("pid", "file", "holder", "holder_rank"))
    assert with_new_files(written) == written


def test_the_documentation_says_of_each_file_who_writes_it() -> None:
    """Of each row, and of nothing else; what is made at the capture is said to be."""
    said = named_patterns(PAGE.read_text())
    rows = files.evidence_files()
    names = {name for row in rows for name in row.names} | {folders.MANIFEST}
    assert [p for p in said if not fnmatch.filter(names, p)] == [], "what is no file of a Case"
    for row in rows:
        mine = [line for pattern, line in said.items() if fnmatch.fnmatch(row.name, pattern)]
        assert mine, f"who writes {row.name}"
        assert not row.of_capture or "at the capture" in mine[0][2], row.name


def test_the_documentation_explains_each_key() -> None:
    """Of the records themselves; those within them often have names that explain themselves."""
    sections = {part.partition("\n")[0]: part for part in PAGE.read_text().split("\n## ")}
    explained = set()
    for file in files.evidence_files():
        # Two files of one record are explained with the first.
        if isinstance(file, JsonFile) and file.record() not in (*explained, dict[str, Any]):
            explained.add(file.record())
            (section,) = (
                text for title, text in sections.items() if file.name in title.split(", ")
            )
            for field in msgspec.structs.fields(file.record()):
                assert field.encode_name in section, f"{file.name} has no word on {field.name}"
    assert len(explained) > 15
