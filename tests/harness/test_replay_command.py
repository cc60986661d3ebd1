"""``hanglab replay`` of real Cases and of folders of dumps, run for real on gloo."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from conditions import wait_for
from dump_folders import dumps, ends_on_gloo
from installed import needs_torch

from hanglab.analyzer.facts.assembly import gather_worlds
from hanglab.analyzer.program.job_dumps import JobOptions
from hanglab.analyzer.recorded_endings import EndingKind, RecordedEnding, recorded_endings
from hanglab.analyzer.verdict import Cause, CollectiveRef, Status, Verdict
from hanglab.harness.capabilities import capability
from hanglab.harness.cli import main
from hanglab.harness.corpus.entries import unpack_entry
from hanglab.harness.rank_endings import call_of, definitions_of, imports_of
from hanglab.harness.replay.comparison import compare_verdicts

pytestmark = pytest.mark.usefixtures("kept_launcher")

MEGATRON = Path(__file__).resolve().parents[3] / "shared" / "data" / "megatron-nccl"
CORPUS = Path(__file__).resolve().parents[1] / "corpus"
#: Scenarios of which the calls tell the cause.
TOLD_BY_CALLS = (
    "skipped_collective",
    "missing_rank",
    "p2p_deadlock",
    "group_order",
    "collective_mismatch",
)

#: Those of which reductions, split lists, and sources of messages tell it.
TOLD_BY_ARGUMENTS = (
    "any_source_unsent",
    "halo_wrong_neighbour",
    "reduction_mismatch",
    "split_mismatch",
)


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a run of the scenarios, each with its fault."""
    folder = tmp_path_factory.mktemp("cases")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["run", "--no-control", "--jobs", "2", *TOLD_BY_CALLS]) == 0
    yield folder / "runs" / "latest"


#: Scenarios of which the cause is no call, and what the replay says of the culprit's end.
TOLD_BY_ENDINGS = {
    "uneven_inputs": "it stood behind the loop that its peers were in",
    "process_frozen": "its process was stopped (state T)",
    "exception": "it ended with ValueError",
    "crash": "it was ended by SIGSEGV",
    "gil_held": "a thread of it held the interpreter's lock in C",
    "python_deadlock": "it waited for a lock of its own",
    "loader_stuck": "it waited for its data loader",
    "teardown": "its interpreter waited for a thread at its end",
    "busy_loop": "it used a full core in Python code and got no further",
    "fork_deadlock": "it waited for a child that it had forked while a lock was held",
    "store_lost": "it kept a store that its peers still needed, and left",
}


def replay(source: Path, out: Path, *more: str) -> int:
    return main(["replay", str(source), "--out", str(out), "--hang-after", "2", *more])


@pytest.mark.slow
@needs_torch
@pytest.mark.parametrize(
    "scenario",
    [
        *TOLD_BY_CALLS[:3],
        *(pytest.param(name, marks=pytest.mark.long) for name in TOLD_BY_CALLS[3:]),
    ],
)
def test_a_replay_hangs_as_the_job_did(
    cases: Path, tmp_path: Path, scenario: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert replay(cases / scenario / "fault" / "0", tmp_path) == 0
    told = capsys.readouterr().out
    assert told.count(scenario) == 2 and "same;" in told
    assert (tmp_path / "latest" / "replay" / "fault" / "0" / "case" / "manifest.json").exists()


@needs_torch
@pytest.mark.long
@pytest.mark.parametrize("scenario", TOLD_BY_ARGUMENTS)
def test_a_replay_keeps_what_calls_were_made_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scenario: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", "--no-control", scenario]) == 0
    case = tmp_path / "runs" / "latest" / scenario / "fault" / "0"
    assert replay(case.resolve(), tmp_path / "replays") == 0


#: Scenarios of which the places tell it at which ranks make their last calls, or their threads.
TOLD_BY_PLACES = {
    "checkpoint_in_thread": "makes its last calls from 2 threads in their order",
    "checkpoint_not_seen": "in a later iteration of the loop than that of peers",
    "combined_streams": "behind the loop that peers are in",
    "compile_cache_differs": "at a later line than that of peers",
}


@needs_torch
@pytest.mark.long
@pytest.mark.parametrize("scenario", TOLD_BY_PLACES)
def test_ranks_make_their_last_calls_where_they_stood(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    scenario: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", "--no-control", scenario]) == 0
    capsys.readouterr()
    case = tmp_path / "runs" / "latest" / scenario / "fault" / "0"
    assert replay(case.resolve(), tmp_path / "replays") == 0
    told = capsys.readouterr().out
    assert TOLD_BY_PLACES[scenario] in told and told.count("same") >= 4


@needs_torch
@pytest.mark.long
@pytest.mark.parametrize("scenario", ["disk_full", "disk_full_unraised"])
def test_a_full_disk_is_met_again(tmp_path: Path, scenario: str) -> None:
    unpack_entry(CORPUS, f"local/{scenario}.fault", tmp_path / "case")
    assert replay(tmp_path / "case", tmp_path / "replays") == 0


@needs_torch
@pytest.mark.parametrize(
    "scenario",
    [
        *list(TOLD_BY_ENDINGS)[:1],
        *(pytest.param(name, marks=pytest.mark.long) for name in list(TOLD_BY_ENDINGS)[1:]),
    ],
)
def test_a_rank_ends_as_its_evidence_says(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    scenario: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", "--no-control", scenario]) == 0
    capsys.readouterr()
    case = tmp_path / "runs" / "latest" / scenario / "fault" / "0"
    assert replay(case.resolve(), tmp_path / "replays") == 0
    told = capsys.readouterr().out
    assert f"ends as its evidence says: {TOLD_BY_ENDINGS[scenario]}" in told
    assert told.count(scenario) >= 2 and told.count("same") == 4


#: Rank 1 leaves the reduction by an exception that it prints, and goes on to the broadcast.
SWALLOWED = """
import traceback
import torch
import torch.distributed as dist

def train(step):
    if dist.get_rank() == 1 and step == 5:
        raise ValueError("a record is broken")
    dist.all_reduce(torch.ones(8))

dist.init_process_group("gloo")
for step in range(20):
    try:
        train(step)
    except ValueError:
        traceback.print_exc()
    dist.broadcast(torch.zeros(2), src=0)
dist.destroy_process_group()
"""


@pytest.mark.slow
@needs_torch
def test_an_exception_that_was_swallowed_is_swallowed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(SWALLOWED)
    assert main(["run", "train.py", "--world-size", "3"]) == 0
    case = (tmp_path / "runs" / "latest" / "train" / "fault" / "0").resolve()
    assert '"cause": "exception"' in (case / "verdict.json").read_text()
    capsys.readouterr()
    assert replay(case, tmp_path / "replays") == 0
    told = capsys.readouterr().out
    assert "rank 1 does before it stops as its evidence says: it printed ValueError" in told
    assert main(["minimise", str(case), "-o", "repro.py"]) == 0
    script = Path("repro.py").read_text()
    assert "[(report, 'ValueError', 'a record is broken')],  # rank 1" in script
    assert "if rank in [1]:\n    broadcast_2()\n" in script


#: Rank 0 announces every step but the tenth; rank 1 asks for each before it reduces.
KEY_LEFT_OUT = """
import time
import torch
import torch.distributed as dist

def poll(store, key):
    while not store.check([key]):
        time.sleep(0.01)

dist.init_process_group("gloo")
store = dist.PrefixStore("steps", dist.distributed_c10d._get_default_store())
for step in range(20):
    key = f"ready/{step}"
    if dist.get_rank() == 0 and step != 9:
        store.set(key, "now")
    if dist.get_rank() == 1:
        ASK
    dist.all_reduce(torch.ones(8))
dist.destroy_process_group()
"""


@needs_torch
@pytest.mark.long
def test_ranks_wait_for_the_lock_of_a_file_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", "--no-control", "file_lock"]) == 0
    case = (tmp_path / "runs" / "latest" / "file_lock" / "fault" / "0").resolve()
    capsys.readouterr()
    assert replay(case, tmp_path / "replays") == 0
    assert "it held the lock of a file that peers waited for" in capsys.readouterr().out
    assert main(["minimise", str(case), "-o", "repro.py"]) == 0
    text = Path("repro.py").read_text()
    assert "[(wait_for_file_lock,)]" in text and "[(hold_file_lock,), (all_reduce" in text


@needs_torch
@pytest.mark.slow
def test_ranks_wait_again_for_the_key_that_a_peer_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", "--no-control", "version_not_announced"]) == 0
    case = (tmp_path / "runs" / "latest" / "version_not_announced" / "fault" / "0").resolve()
    capsys.readouterr()
    assert replay(case, tmp_path / "replays") == 0
    told = capsys.readouterr().out
    assert "evidence says: it set the store's keys 'version/2', 'version/3', 'version/4'" in told
    assert "it asked again and again for the store's key 'version/6'" in told
    assert told.count("python_deadlock") == 2
    program = msgspec.json.decode(
        next((tmp_path / "replays").glob("latest/program.json")).read_bytes()
    )
    # The versions before it, each between the calls at which it was announced.
    announced = program["before_stop"][0]
    assert [one["arguments"] for one in announced] == [[f"version/{n}"] for n in (2, 3, 4, 5)]
    turns = [one["turn"] for one in announced]
    assert {b - a for a, b in pairwise(turns)} == {2}


@needs_torch
@pytest.mark.long
@pytest.mark.parametrize("ask", ["store.get(key)", "poll(store, key)"])
def test_a_key_that_never_came_is_minimised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(KEY_LEFT_OUT.replace("ASK", ask))
    assert main(["run", "train.py", "--world-size", "3"]) == 0
    case = (tmp_path / "runs" / "latest" / "train" / "fault" / "0").resolve()
    assert '"cause": "python_deadlock"' in (case / "verdict.json").read_text()
    assert main(["minimise", str(case), "-o", "repro.py"]) == 0
    text = Path("repro.py").read_text()
    function = "wait_for_key" if "get" in ask else "poll_for_key"
    used = re.findall(r"\((\w+_key), '.*ready/(\d)'\)", text)
    assert [key for name, key in used if name == "set_key"] == ["5", "6", "7", "8"]
    assert [key for name, key in used if name == function] == ["6", "7", "8", "9"]
    assert main(["run", "repro_scenario.py"]) == 0


@pytest.mark.parametrize(
    ("case", "kinds"),
    [
        # Peers end by the connection that they lost, and are left to do so again.
        ("local/exception.fault", {1: EndingKind.RAISES}),
        ("local/oom_killed.fault", {2: EndingKind.KILLED}),
        # Who left by itself does so again; who never did has a thread to wait for.
        (
            "local/teardown.fault",
            {
                0: EndingKind.EXITS,
                1: EndingKind.WAITS_AT_EXIT,
                2: EndingKind.EXITS,
                3: EndingKind.EXITS,
            },
        ),
        # Hosts that wait for their devices wait for no lock of their own.
        ("nccl-emulated/link_down.fault", {}),
        ("nccl-emulated/host_sync.fault", {}),
        ("nccl-emulated/size_mismatch_hangs.fault", {}),
    ],
)
def test_only_ranks_that_ended_by_themselves_are_ended(
    tmp_path: Path, case: str, kinds: dict[int, EndingKind]
) -> None:
    unpack_entry(CORPUS, case, tmp_path / "case")
    facts, *_ = gather_worlds(tmp_path / "case")
    assert {rank: one.kind for rank, one in recorded_endings(facts).items()} == kinds


@pytest.mark.parametrize(
    ("name", "kind"),
    [("KeyError", KeyError), ("my.package.OwnError", Exception), ("UnicodeDecodeError", Exception)],
)
def test_exceptions_are_raised_by_type_and_text(name: str, kind: type[Exception]) -> None:
    ending = RecordedEnding(EndingKind.RAISES, 1, name, 'it\'s "odd"\n and {long}')
    program = "\n".join(f"import {module}" for module in imports_of({ending.kind}))
    program += "\n" + "\n".join(definitions_of({ending.kind}))
    function, *words = call_of(ending)
    with pytest.raises(kind) as caught:
        exec(f"{program}\n{function}({', '.join(words)})", {})
    assert caught.type.__name__ == name.rpartition(".")[2]
    assert caught.value.args == (ending.text,)


@needs_torch
@pytest.mark.parametrize(
    ("layout", "fault"),
    [
        ("3d", "stop"),
        pytest.param("hsdp", "size", marks=pytest.mark.long),
        pytest.param("fsdp", "device_stop", marks=pytest.mark.long),
    ],
)
def test_dumps_of_nccl_with_gaps_replay_with_a_list_of_what_is_assumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], layout: str, fault: str
) -> None:
    options = JobOptions(8, layout, fault, operations=60, seed=4, missing=1, ring=30)
    assert replay(dumps(tmp_path / "dumps", options), tmp_path / "out", "--true-sizes") == 0
    told = capsys.readouterr().out
    assert "assumed: rank 0, which left no entries" in told
    assert "differs: nccl enqueues on a device" in told


@needs_torch
@pytest.mark.skipif(
    not MEGATRON.is_dir(), reason=f"put the dumps of the Megatron hangs there: {MEGATRON}"
)
@pytest.mark.long
@pytest.mark.parametrize("job", ["lock_gil_2nd", "gpu_error_2nd"])
@pytest.mark.parametrize("backend", ["gloo", "nccl-emulated"])
def test_a_strangers_job_of_sixteen_ranks_replays(tmp_path: Path, job: str, backend: str) -> None:
    assert replay(MEGATRON / job, tmp_path, "--backend", backend) == 0


@pytest.mark.slow
@needs_torch
def test_a_job_of_nccl_replays_on_an_emulated_device(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its operation is the original's, too, as hosts run ahead of the device."""
    job = dumps(tmp_path / "dumps", JobOptions(8, "3d", "skip", operations=60))
    assert replay(job, tmp_path / "out", "--backend", "nccl-emulated") == 0
    told = capsys.readouterr().out
    assert told.count("same") == 4 and "stands for the device of nccl" in told


@needs_torch
@pytest.mark.long
@pytest.mark.parametrize(
    ("layout", "fault"), [("hsdp", "size"), ("fsdp", "device_stop"), ("3d", "unmatched")]
)
def test_nccl_dumps_with_gaps_replay_on_an_emulated_device(
    tmp_path: Path, layout: str, fault: str
) -> None:
    """Hosts that have run ahead wait for their devices, and keep nobody from anything by that."""
    options = JobOptions(8, layout, fault, operations=200, seed=5, missing=1, ring=80)
    job = dumps(tmp_path / "dumps", options)
    assert replay(job, tmp_path / "out", "--backend", "nccl-emulated") == 0


#: Of each category of what calls tell, one; the last stands behind a loop that hosts are in.
ON_THE_DEVICE = ("crossed_on_device", "split_mismatch", "p2p_deadlock", "uneven_inputs")


@needs_torch
@pytest.mark.long
@pytest.mark.parametrize("scenario", ON_THE_DEVICE)
def test_a_case_of_the_emulated_device_replays_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scenario: str
) -> None:
    monkeypatch.chdir(tmp_path)
    device = ("--backend", "nccl-emulated")
    assert main(["run", "--no-control", *device, scenario]) == 0
    case = tmp_path / "runs" / "latest" / scenario / "fault" / "0"
    assert replay(case.resolve(), tmp_path / "replays", *device) == 0


@needs_torch
def test_what_holds_no_hang_is_told_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unpack_entry(CORPUS, "local/io_blocked.fault", tmp_path / "case")
    for command in ("replay", "minimise"):
        assert main([command, str(tmp_path / "case"), "--out", str(tmp_path / "out.py")]) == 2
        assert "This hang cannot be replayed: its cause, io_blocked" in capsys.readouterr().err
    healthy = dumps(tmp_path / "dumps", JobOptions(4, "world", "none", operations=20, missing=1))
    assert replay(healthy, tmp_path / "out") == 2
    assert "there is no hang to replay" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert replay(tmp_path / "nowhere", tmp_path / "out") == 4
    assert "does not exist" in capsys.readouterr().err
    assert main(["replay", str(healthy), "--speed", "-1"]) == 64
    for command in ("replay", "minimise", "run"):
        assert main([command, str(healthy), "--deadline", "nan"]) == 64
        assert "nan is no number" in capsys.readouterr().err


@needs_torch
def test_a_replay_that_ends_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert replay(ends_on_gloo(tmp_path / "dumps"), tmp_path / "out") == 3
    told = capsys.readouterr().out
    assert "not reproduced;" in told and "dtype_mismatch" in told


@needs_torch
@pytest.mark.long
def test_a_job_is_cut_to_as_many_ranks_as_are_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = dumps(tmp_path / "dumps", JobOptions(16, "3d", "stop", operations=60, seed=4))
    assert replay(job, tmp_path / "out", "--world-size", "3") == 0
    told = capsys.readouterr().out
    culprit = next(line for line in told.splitlines() if "culprits" in line).split()[3]
    ranks = next(line for line in told.splitlines() if line.startswith("ranks:"))
    assert culprit in ranks.replace(",", "").split(" of ")[0].split()
    assert "as ranks 0 to 2" in ranks
    (program,) = (tmp_path / "out").glob("latest/program.json")
    assert len(msgspec.json.decode(program.read_bytes())["calls"]) == 3


@needs_torch
def test_ranks_and_backends_that_cannot_be_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = dumps(tmp_path / "dumps", JobOptions(4, "world", "size", operations=20))
    # Of two ranks alone nothing tells whose size is wrong.
    assert replay(job, tmp_path / "out", "--world-size", "2") == 2
    assert "no 2 ranks of this job hang for the same reason" in capsys.readouterr().err
    assert replay(job, tmp_path / "out", "--world-size", "5") == 64
    assert "The job has 4 ranks, not 5" in capsys.readouterr().err
    assert replay(job, tmp_path / "out", "--backend", "mpi") == 64
    assert not (tmp_path / "out").exists()


@needs_torch
@pytest.mark.skipif(
    capability("nccl").available,
    reason="what lacks is told only without a GPU: run it where there is none",
)
def test_nccl_without_a_gpu_says_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = dumps(tmp_path / "dumps", JobOptions(4, "world", "size", operations=20))
    assert replay(job, tmp_path / "out", "--backend", "nccl") == 4
    told = capsys.readouterr().err
    assert "needs nccl" in told and "GPU" in told


@pytest.fixture
def replaying(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A replay that would not be called stuck for a long while."""
    job = dumps(tmp_path / "dumps", JobOptions(4, "world", "stop", operations=20))
    command = [sys.executable, "-m", "hanglab.harness.cli", "replay", str(job)]
    process = subprocess.Popen(
        [*command, "--out", str(tmp_path / "out"), "--hang-after", "90"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
@needs_torch
def test_ctrl_c_ends_a_replay_and_keeps_what_it_captured(
    replaying: subprocess.Popen[str], tmp_path: Path
) -> None:
    case = tmp_path / "out" / "latest" / "replay" / "fault" / "0" / "case"
    wait_for(lambda: len([*case.glob("hosts/*/ranks/*/process.json")]) == 4, "four ranks")
    ranks = [*case.glob("hosts/*/ranks/*/process.json")]
    pids = [msgspec.json.decode(rank.read_bytes())["pid"] for rank in ranks]
    replaying.send_signal(signal.SIGINT)
    _, told = replaying.communicate(timeout=280)
    assert replaying.returncode == 130
    assert "interrupted" in told and "Traceback" not in told
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert (case / "manifest.json").exists()


def verdict(op: str, status: Status = Status.HUNG, culprits: tuple[int, ...] = (1,)) -> Verdict:
    return Verdict(
        status=status,
        cause=Cause.MISSING_RANK,
        culprits=list(culprits),
        collective=CollectiveRef("g", "0", [0, 1], 7, op),
    )


def test_verdicts_are_the_same_by_cause_culprits_and_operation() -> None:
    original = verdict("_reduce_scatter_base")
    # gloo's buffer calls it so.
    assert compare_verdicts(original, verdict("all_reduce")).outcome == "same"
    assert compare_verdicts(original, verdict("broadcast")).outcome == "differs"
    also_open = {("reduce_scatter", (0, 1))}
    found = compare_verdicts(original, verdict("broadcast"), also_open)
    assert found.outcome == "same"
    # The table says what each verdict names all the same.
    assert found.rows[-1][1:] == (
        "reduce_scatter of ranks 0, 1",
        "broadcast of ranks 0, 1",
        "open in the replay, too",
    )
    other = verdict("all_reduce", culprits=(0,))
    assert compare_verdicts(original, other, also_open).outcome == "differs"
    for status in (Status.HEALTHY, Status.CORRUPT):
        ended = verdict("all_reduce", status)
        assert compare_verdicts(original, ended).outcome == "not reproduced"
