"""Texts of bytes that are no UTF-8: they cost neither the file that holds them, nor a capture."""

from __future__ import annotations

import json
from pathlib import Path

from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case import folders
from hanglab.recorder.case.reader import CaseReader
from hanglab.recorder.case.records import Absence, FileLockWait
from hanglab.recorder.case.undecodable_text import decode_json, encode_json
from hanglab.recorder.case.writer import write, write_manifest

#: As os.listdir gives the name of a file in Latin-1.
ODD = b"caf\xe9.txt".decode("utf-8", "surrogateescape")


def rank_folder(tmp_path: Path) -> Path:
    return folders.make_private(folders.rank_folder(tmp_path / "case", "node0", 0))


def test_an_exception_about_such_a_file_is_read(tmp_path: Path) -> None:
    folder = rank_folder(tmp_path)
    at = {"wall_ns": 1, "mono_ns": 1}
    raised = {"at": at, "type": "FileNotFoundError", "frames": []}
    told = (f"No such file: '{ODD}'", "\U0001f600 and a plain one")
    lines = [json.dumps({**raised, "message": message}) for message in told]
    (folder / files.EXCEPTIONS.name).write_text("\n".join(lines) + "\n")
    reader = CaseReader(tmp_path / "case")
    messages = [one.message for one in reader.ranks[0].read(files.EXCEPTIONS)]
    assert messages == ["No such file: 'caf\\udce9.txt'", "\U0001f600 and a plain one"]
    assert reader.problems == []


def test_what_the_agent_saw_of_it_is_written(tmp_path: Path) -> None:
    folder = rank_folder(tmp_path)
    write(folder, files.FILE_LOCKS, [FileLockWait(5, "FLOCK", f"/data/{ODD}", 7, 1)])
    (found,) = CaseReader(tmp_path / "case").ranks[0].read(files.FILE_LOCKS)
    assert found.file == "/data/caf\\udce9.txt"
    (folder / ODD).touch()
    absent = Absence(ODD, f"{ODD} could not be read", "node0", 0)
    manifest = write_manifest(tmp_path / "case", "test", [absent])
    assert any(one.path.endswith(ODD) for one in manifest.files), "it is listed"
    (told,) = CaseReader(tmp_path / "case").absent
    assert told.reason == "caf\\udce9.txt could not be read"


def test_damage_stays_damage(tmp_path: Path) -> None:
    folder = rank_folder(tmp_path)
    (folder / files.EXCEPTIONS.name).write_text('{"type": "\\udce9"\n{"at": "\\udce9"}\n')
    reader = CaseReader(tmp_path / "case")
    assert reader.ranks[0].read(files.EXCEPTIONS) == []
    assert len(reader.problems) == 2 and "line 1 is damaged" in reader.problems[0][1]


def test_nothing_else_is_changed() -> None:
    for text in ("", "plain", "Straße 训练 \U0001f600", "\\udce9"):
        assert decode_json(encode_json({text: [text, 1, None]}), dict) == {text: [text, 1, None]}
