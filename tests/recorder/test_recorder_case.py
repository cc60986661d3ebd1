"""Writing and reading a Case and its progress file, whole and damaged."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case import folders, layout
from hanglab.recorder.case.progress import NotProgress, read_counters, read_progress
from hanglab.recorder.case.reader import CaseReader, NotACase
from hanglab.recorder.case.records import Absence, Clock, Exit, JobRecord
from hanglab.recorder.case.user_code import UserCode, own_folders, site_folders, stdlib_folders
from hanglab.recorder.case.writer import write, write_manifest, write_tail
from hanglab.recorder.rank.progress_file import ProgressFile
from hanglab.recorder.rank.sections import INPUT, section_type


@pytest.fixture
def progress(tmp_path: Path, writer) -> ProgressFile:
    file = ProgressFile(tmp_path / "progress.bin", writer)
    file.identify(rank=3, attempt=1, world_size=4)
    return file


def decoded(tmp_path: Path):
    return read_progress((tmp_path / "progress.bin").read_bytes())


def test_header_and_steps(progress, tmp_path):
    assert decoded(tmp_path).step == -1
    progress.step(None)
    progress.step(None)
    progress.step(40)
    found = decoded(tmp_path)
    assert (found.pid, found.rank, found.phase) == (os.getpid(), 3, "running")
    assert [step for step, _ in found.steps] == [0, 1, 40]
    assert found.step == 40 and found.step_started_ns == found.steps[-1][1]
    counters = read_counters((tmp_path / "progress.bin").read_bytes()[: layout.COUNTERS_BYTES])
    assert (counters.rank, counters.attempt, counters.step, counters.steps_total) == (3, 1, 40, 3)
    assert os.stat(tmp_path / "progress.bin").st_mode & 0o777 == 0o600


def test_sections_nest_and_add_up(progress, tmp_path):
    section = section_type(progress)
    with section("outer"):
        with section("load", INPUT), section("inner"):
            found = decoded(tmp_path)
            assert [s.section for s in found.open_sections] == ["outer", "load", "inner"]
        with pytest.raises(KeyError), section("load", INPUT):
            raise KeyError
    section.write_totals()
    found = decoded(tmp_path)
    assert found.open_sections == []
    assert [e.section for e in found.section_events] == ["inner", "load", "load", "outer"]
    totals = {t.section: t for t in found.section_totals}
    assert (totals["load"].kind, totals["load"].count) == ("input", 2)
    assert totals["outer"].wall_ns >= totals["load"].wall_ns > 0
    assert not found.truncated


def test_rings_keep_the_latest(progress, tmp_path):
    section = section_type(progress)
    names = [f"s{number % 7}" for number in range(layout.SECTIONS.capacity + 10)]
    for name in names:
        with section(name):
            pass
    # By their order alone: a machine's clock may be set back a little between two of them.
    assert [event.section for event in decoded(tmp_path).section_events] == names[10:]


def test_lack_of_room_is_told(progress, tmp_path):
    section = section_type(progress)
    for number in range(layout.TOTALS.capacity + 1):
        with section(f"{number:04}" * 300):
            pass
    found = decoded(tmp_path)
    assert found.truncated
    assert found.section_events[-1].section == "", "no text is better than a wrong one"


def test_half_written_record_is_left_out(progress, tmp_path):
    progress.step(None)
    progress.step(None)
    second = progress.at[layout.STEPS] + layout.STEPS.record
    struct.pack_into("<q", progress.mapping, second, 77)
    assert [step for step, _ in decoded(tmp_path).steps] == [0]


@pytest.mark.parametrize("places", [(0,), (130,), (127, 128, 129), (0, 700), (1023,), (5, 1023)])
def test_records_are_found_wherever_in_their_ring_they_stand(progress, tmp_path, places):
    """The reader leaves out the zeros behind the last of them, block by block."""
    for place in places:
        at = progress.at[layout.STEPS] + place * layout.STEPS.record
        struct.pack_into("<4q", progress.mapping, at, place + 1, place, 7, place + 1)
    assert decoded(tmp_path).steps == [(place, 7) for place in places]


@settings(deadline=None)
@given(data=st.data())
def test_damaged_progress_never_breaks_the_reader(data):
    file = ProgressFile(None)
    file.identify(0, 0, 1)
    with section_type(file)("a"):
        file.step()
    content = bytearray(file.mapping[:])
    for _ in range(data.draw(st.integers(1, 6))):
        slot = data.draw(st.integers(0, 60) | st.integers(0, len(content) // 8 - 1))
        value = data.draw(st.integers(-(1 << 63), (1 << 63) - 1))
        struct.pack_into("<q", content, 8 * slot, value)
    size = data.draw(st.integers(0, len(content)))
    for bytes_ in (bytes(content), bytes(content[:size])):
        try:
            found = read_progress(bytes_)
        except NotProgress:
            continue
        assert len(found.section_events) <= layout.SECTIONS.capacity + len(content) // 56


def write_rank(case: Path, rank: int, attempt: int = 0) -> Path:
    folder = folders.rank_folder(case, "host-a", rank, attempt)
    write(folder, files.EXIT, Exit(Clock(1, 2), code=rank))
    return folder


def test_case_round_trip(tmp_path):
    case = tmp_path / "case"
    first = write_rank(case, 0)
    write_rank(case, 1, 0)
    write_rank(case, 1, 1)
    write(case, files.JOB, JobRecord(2, Clock(1, 2)))
    write(first, files.STACKS, [])
    (first / "extra.bin").write_bytes(b"extra")
    log = tmp_path / "log"
    log.write_bytes(b"x" * 50 + b"\n" + b"y" * 100_000 + b"\nlast\n")
    write_tail(first / files.STDERR.name, log)
    absent = Absence("stacks.jsonl", "because", "host-a", 1)
    manifest = write_manifest(case, "test", [absent])
    found = CaseReader(case)
    assert found.problems == []
    assert [(r.rank, r.attempt, r.host) for r in found.ranks] == [
        (0, 0, "host-a"),
        (1, 1, "host-a"),
    ]
    assert len(found.all_attempts) == 3
    assert found.absent == [absent] and found.world_size == 2
    assert found.ranks[0].read(files.STDERR) == "last\n"
    assert found.ranks[1].read(files.EXIT) is not None and found.ranks[1].read(files.EXIT).code == 1
    assert found.ranks[0].read(files.PROGRESS) is None and found.ranks[0].read(files.STACKS) == []
    assert found.ranks[0].read(files.FLIGHT_RECORDER) is None
    for entry in manifest.files:
        assert (case / entry.path).stat().st_size == entry.size
    assert case.stat().st_mode & 0o777 == 0o700


def test_folder_without_manifest_is_read(tmp_path):
    write_rank(tmp_path, 5)
    assert [r.rank for r in CaseReader(tmp_path).ranks] == [5]


def test_what_is_no_case_is_said(tmp_path):
    with pytest.raises(NotACase, match="neither"):
        CaseReader(tmp_path)
    with pytest.raises(NotACase, match="not a folder"):
        CaseReader(tmp_path / "none")
    (tmp_path / folders.MANIFEST).write_text(
        json.dumps({"format": 2, "recorder": "", "written": {"wall_ns": 0, "mono_ns": 0}})
    )
    with pytest.raises(NotACase, match="newer") as caught:
        CaseReader(tmp_path)
    assert caught.value.advice == "Read it with a newer hanglab."


def test_damage_is_a_problem_and_no_exception(tmp_path):
    folder = write_rank(tmp_path / "case", 0)
    (folder / files.PROGRESS.name).write_bytes(b"HANGLAB1")
    (folder / files.MOVEMENT.name).write_bytes(b"[" * 100_000)
    (folder / files.STACKS.name).write_bytes(b'{"at": 1}\n\xff\xfe\n\n')
    os.mkfifo(folder / files.FLIGHT_RECORDER.name)
    (tmp_path / "secret").write_text("secret")
    (folder / files.STDERR.name).symlink_to(tmp_path / "secret")
    (folder.parent / "7.0").symlink_to(tmp_path)
    (tmp_path / "case" / files.JOB.name).write_text("null")
    case = CaseReader(tmp_path / "case")
    (rank,) = case.ranks
    assert (
        rank.read(files.PROGRESS) is None
        and rank.read(files.MOVEMENT) is None
        and rank.read(files.STACKS) == []
    )
    assert (
        rank.read(files.FLIGHT_RECORDER) is None
        and rank.read(files.STDERR) == ""
        and case.job is None
    )
    assert {path.name for path, _ in case.problems} == {
        files.PROGRESS.name, files.MOVEMENT.name, files.STACKS.name, files.FLIGHT_RECORDER.name,
        files.STDERR.name, files.JOB.name,
    }  # fmt: skip


def test_user_code_is_told_apart():
    user_code = UserCode(stdlib_folders(), site_folders(), own_folders())
    assert user_code(__file__) and user_code("train.py")
    assert user_code(str(Path(own_folders()[0]).parent / "scenarios" / "x" / "y.py"))
    for file in (os.__file__, pytest.__file__, layout.__file__, "<frozen importlib>", ""):
        assert not user_code(file), file
