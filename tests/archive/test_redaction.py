"""A redacted Case leads to the same verdict, and holds no name of the job's any more."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from installed import needs_torch

from hanglab.analyzer.engine import analyze
from hanglab.analyzer.logs.tracebacks import tracebacks_of_ranks
from hanglab.harness.recording import archives
from hanglab.recorder.archive.buffer_redaction import UnsafeBuffer, redact_buffer
from hanglab.recorder.archive.pseudonyms import Pseudonyms
from hanglab.recorder.archive.text_redaction import TextRedaction
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case import folders
from hanglab.recorder.case.reader import CaseReader
from hanglab.recorder.case.records import Clock, Container, Python, ThreadWait
from hanglab.recorder.case.writer import write, write_manifest

pytestmark = needs_torch

#: Nothing in a Case is called anything like these by itself.
FOLDER, SCRIPT, FUNCTION, SECTION = "quokkaheim", "wombatrain", "numbatical", "echidnary"
SECRET = "bandicoot17"

PROGRAM = f"""
import os, sys, time, torch, torch.distributed as dist
from hanglab import recorder
def {FUNCTION}(step):
    how, rank = sys.argv[1], dist.get_rank()
    with recorder.section("{SECTION}"):
        if rank == 1 and step == 4:
            if how == "sleep":
                time.sleep(600)
            if how == "raise":
                raise OSError(28, "No space left on device", "/{FOLDER}/{SECRET}.pt")
            if how == "skip":
                return
        dist.all_reduce(torch.ones(4), group=group)
    dist.broadcast(torch.ones(2), 0)
dist.init_process_group("gloo")
group = dist.new_group([0, 1], group_desc="{SECTION}_group")
for step in range(8):
    {FUNCTION}(step)
"""


def record(tmp_path: Path, how: str) -> Path:
    folder = tmp_path / FOLDER
    folder.mkdir()
    (folder / f"{SCRIPT}.py").write_text(PROGRAM)
    with_secret = {"NCCL_COMMENT": SECRET, "TORCH_DIST_API_KEY": SECRET, "OMP_NUM_THREADS": "1"}
    words = ["record", "--out", str(folder / "case"), "--hang-after", "2", "--"]
    words += [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"]
    words += ["--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", f"{SCRIPT}.py", how, SECRET]
    subprocess.run(
        [sys.executable, "-m", "hanglab.harness.cli", *words],
        cwd=folder,
        env={**os.environ, **with_secret, "GLOO_SOCKET_IFNAME": "lo"},
        capture_output=True,
        timeout=280,
        check=False,
    )
    return folder / "case"


@pytest.mark.slow
@pytest.mark.parametrize(
    "how", ["skip", *(pytest.param(how, marks=pytest.mark.long) for how in ("sleep", "raise"))]
)
def test_verdict_stays_and_names_go(tmp_path, how):
    case = record(tmp_path, how)
    before = analyze(case)
    assert before.culprits == [1] and before.cause is not None
    left_out, differences = archives.redact(case, tmp_path / "copy", False)
    assert differences == []
    assert all("flight_recorder" not in line and "progress" not in line for line in left_out)
    after = analyze(tmp_path / "copy")
    assert (after.cause, after.culprits, after.confidence) == (
        before.cause,
        before.culprits,
        before.confidence,
    )
    assert (after.location is None) == (before.location is None)
    if after.location is not None and before.location is not None:
        assert after.location.line == before.location.line
        assert after.location.file.startswith("/user/")
    names = [FOLDER, SCRIPT, FUNCTION, SECTION, SECRET, str(tmp_path), str(Path.home()) + "/"]
    names += [f'"{os.uname().nodename}"', f"/{os.uname().nodename}/", sys.prefix]
    content = {
        path.relative_to(tmp_path).as_posix(): path.read_bytes()
        for path in (tmp_path / "copy").rglob("*")
        if path.is_file()
    }
    assert any(name.endswith("flight_recorder_stacks.pickle") for name in content)
    found = [
        (name, path)
        for name in names
        for path, data in content.items()
        if name.encode() in data or name in path
    ]
    assert found == []
    host = json.loads(next((tmp_path / "copy").glob("hosts/*/host.json")).read_text())
    assert host["name"] == "host1"
    assert {p.stat().st_mode & 0o077 for p in (tmp_path / "copy").rglob("*")} == {0}


def test_unknown_files_are_dropped(tmp_path):
    case = tmp_path / "case"
    rank = case / "hosts" / "h" / "ranks" / "0.0"
    rank.mkdir(parents=True)
    (rank / "notes.txt").write_text(SECRET)
    (rank / "flight_recorder.pickle").write_bytes(b"\x80\x02cos\nsystem\n.")
    left_out, _ = archives.redact(case, tmp_path / "copy", False)
    assert {line.partition(":")[0].rpartition("/")[2] for line in left_out} == {
        "notes.txt",
        "flight_recorder.pickle",
    }
    assert [p.name for p in (tmp_path / "copy").rglob("*") if p.is_file()] == ["manifest.json"]


@pytest.mark.parametrize("name", ["stderr.txt", "ranks/0.0/stderr.txt", "ranks/0.0/progress.bin"])
def test_what_nobody_could_read_whole_is_left_out(tmp_path, name):
    case = tmp_path / "case"
    endless = case / "hosts" / "h" / name
    (case / "hosts" / "h" / "ranks" / "0.0").mkdir(parents=True)
    endless.touch()
    os.truncate(endless, 1 << 40)
    left_out, _ = archives.redact(case, tmp_path / "copy", False)
    (line,) = left_out
    assert line.startswith(f"hosts/h/{name}: has {1 << 40} bytes, more than")
    assert not list((tmp_path / "copy").rglob(endless.name))


def test_what_the_engine_says_of_a_container_stays_without_its_names(tmp_path):
    case = tmp_path / "case"
    known = Container(
        Clock(1, 2), SECRET, "paused", oom_killed=True, addresses=["172.18.0.2"], networks=1
    )
    write(case / "hosts" / "h", files.CONTAINER, known)
    write_manifest(case, "test", [])
    archives.redact(case, tmp_path / "copy", False)
    kept = CaseReader(tmp_path / "copy").hosts["host1"].read(files.CONTAINER)
    assert kept is not None
    assert (kept.status, kept.oom_killed, kept.addresses) == ("paused", True, ["192.0.2.1"])
    assert SECRET not in kept.id


def test_that_nothing_was_waited_for_at_the_capture_stays(tmp_path):
    folder = folders.make_private(folders.rank_folder(tmp_path / "case", "host", 0))
    write(folder, files.WAITS, [ThreadWait("queue", True)])
    (folder / files.WAITS.snapshot_name).write_text("[]")
    write_manifest(tmp_path / "case", "test", [])
    archives.redact(tmp_path / "case", tmp_path / "copy", False)
    (rank,) = CaseReader(tmp_path / "copy").ranks
    assert (len(rank.read(files.WAITS)), rank.as_captured.read(files.WAITS)) == (1, [])


def test_buffer_with_code_in_it_is_not_run(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "ran"),)

    with pytest.raises(UnsafeBuffer):
        redact_buffer(pickle.dumps({"entries": [Evil()]}), Pseudonyms())
    assert not (tmp_path / "ran").exists()


def test_buffer_that_asks_for_memory_is_refused():
    """Nine bytes for which the unpickler would make a table of 2**31 places."""
    with pytest.raises(UnsafeBuffer, match="objects"):
        redact_buffer(b"\x80\x02}r\xff\xff\xff\x7f.", Pseudonyms())


def test_buffer_that_is_nested_too_deeply_is_refused():
    deep = b"\x80\x02}X\x07\x00\x00\x00version" + b"]" * 20_000 + b"a" * 19_999 + b"s."
    with pytest.raises(UnsafeBuffer, match="deeply"):
        redact_buffer(deep, Pseudonyms())


def test_texts_keep_what_everybody_says_and_nothing_else():
    names = Pseudonyms()
    names.learn(Python("3.11", stdlib=["/usr/lib/python3.11"], site=["/venv/site-packages"]))
    texts = TextRedaction(names)
    said = texts.phrase(
        "[../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer "
        "[10.11.12.13]:4711 at node17.example.org"
    )
    assert "Connection closed by peer" in said
    assert "10.11.12.13" not in said and "node17" not in said and "example" not in said
    error = texts.lines(
        "[rank1]: Traceback (most recent call last):\n"
        f'[rank1]:   File "/home/{SECRET}/x.py", line 7, in {FUNCTION}\n'
        f"[rank1]:     open('/{FOLDER}')\n"
        f"[rank1]: OSError: [Errno 28] No space left on device: '/{FOLDER}/{SECRET}.pt'\n"
        f"loading {SECRET}\n"
    )
    assert "[Errno 28] No space left on device" in error and "line 7" in error
    assert not any(name in error for name in (SECRET, FUNCTION, FOLDER, "loading"))


def test_sizes_that_do_not_match_are_kept_with_their_message():
    said = TextRedaction(Pseudonyms()).phrase(
        f"[enforce fail at /{SECRET}/gloo/transport/tcp/pair.cc:456] op.preamble.length <= "
        f"op.nbytes. 2048 vs 1024. Received data size doesn't match {SECRET}"
    )
    assert "op.preamble.length <= op.nbytes. 2048 vs 1024" in said and SECRET not in said


def test_same_thing_gets_the_same_name():
    names = Pseudonyms()
    assert names.file("/a/x.py") == names.file("/a/x.py") != names.file("/a/y.py")
    assert names.function("f", "/a/x.py") == names.function("C.f", "/a/x.py")
    assert names.address("10.0.0.7:80").rpartition(":")[0] == "192.0.2.1"
    assert names.address("127.0.0.1:80") == "127.0.0.1:80"


def test_tracebacks_of_other_ranks_within_a_message_keep_their_ranks_and_frames() -> None:
    message = (
        "CheckpointException ranks:dict_keys([2])\n"
        "Traceback (most recent call last): (RANK 2)\n"
        '  File "/srv/secret/train.py", line 12, in write_data\n'
        "    raise OSError(28, secret)\n"
        "OSError: [Errno 28] No space left on device: '/srv/secret'\n"
    )
    said = TextRedaction(Pseudonyms()).phrase(message)
    assert "secret" not in said
    theirs = tracebacks_of_ranks(said)[2]
    assert theirs.type == "OSError" and "No space left on device" in theirs.message
    assert [frame.line for frame in theirs.frames] == [12]
