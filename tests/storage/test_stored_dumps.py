"""Dumps in a store that a cluster's workers fetch themselves; only names come to the client."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from s3_server import S3Server

from hanglab.analyzer.flight_recorder.discovery import find_candidates
from hanglab.analyzer.flight_recorder.dump_input import DumpInput, bytes_of
from hanglab.analyzer.program.job_dumps import JobOptions
from hanglab.harness.cli import main
from hanglab.harness.cluster.stored_dumps import StoredDumps, names_of_dumps
from hanglab.harness.storage import transfers
from hanglab.harness.storage.errors import StorageError
from hanglab.harness.storage.fetching import stored_files
from hanglab.harness.storage.locations import place_of
from tests.harness.dump_folders import dumps

PLACE = "s3://hangs/dumps"


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers, "PAUSES_S", (0.01, 0.01))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = dumps(tmp_path / "made", JobOptions(16, "3d", "skip", operations=60))
    (made / "rank_500").write_bytes(b"\x7fELF" + bytes(5 << 20))
    return made


def sent(folder: Path) -> None:
    import fsspec

    fsspec.filesystem("s3").put(f"{folder}/", PLACE, recursive=True)


def test_the_verdict_is_that_of_the_folder(
    s3: S3Server, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    sent(folder)
    assert main(["analyze", PLACE, "--json"]) == 0
    alone = capfd.readouterr().out
    s3.faults.seen.clear()
    assert main(["analyze", PLACE, "--json", "--on", "local"]) == 0
    assert capfd.readouterr().out == alone
    # Each file by a worker: this process lists the names alone, and reads nothing.
    assert {path for method, path in s3.faults.seen if method == "GET" and "rank_" in path} == {
        f"/hangs/dumps/{path.name}" for path in folder.iterdir()
    }


def test_only_names_sizes_and_times_come_here(s3: S3Server, folder: Path) -> None:
    sent(folder)
    s3.faults.seen.clear()
    place = place_of(PLACE)
    with names_of_dumps(place, stored_files(place)) as names:
        here = {path.name: path.stat() for path in names.iterdir()}
        assert {name: one.st_size for name, one in here.items()} == {
            path.name: path.stat().st_size for path in folder.iterdir()
        }
        assert all(one.st_blocks == 0 for one in here.values())
        items = [DumpInput.of(candidate) for candidate in find_candidates(names)]
    assert not any("rank_" in path for method, path in s3.faults.seen if method == "GET")
    brought = StoredDumps(PLACE)(items)
    assert all(
        bytes_of(one) == (folder / one.name).read_bytes() for one in brought if one.size < 5 << 20
    )


def test_a_file_that_ends_early_is_an_error_and_no_dump(s3: S3Server, folder: Path) -> None:
    sent(folder)
    items = [DumpInput.of(candidate) for candidate in find_candidates(folder)]
    s3.faults.cut = lambda method, path: method == "GET" and path.endswith("rank_3")
    with pytest.raises(StorageError, match="s3://hangs/dumps cannot be read"):
        StoredDumps(PLACE)(items)


def test_a_case_in_a_store_is_fetched_here(
    s3: S3Server, case: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(case, tmp_path / "copy")
    assert main(["upload", str(case), "s3://hangs/case"]) == 0
    assert main(["analyze", str(case), "--json"]) == 0
    alone = capfd.readouterr().out.split("\n", 1)[1]
    assert main(["analyze", "s3://hangs/case", "--json", "--on", "local"]) == 0
    assert capfd.readouterr().out == alone
