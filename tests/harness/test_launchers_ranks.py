"""A forked rank looks, and ends, as if its script had been started by a fresh interpreter."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from launcher_support import PROGRAMS, all_exits, make_plan

from hanglab.harness.launchers.local import LocalLauncher

#: What differs between a rank and the same script started by hand, and has to.
MEANT_TO_DIFFER = {
    "environment",
    "c_environment_temporary",
    "descriptors",
    "frames",
    "random",
    "rank",
    "session",
    "buffering",
    # The recorder's own, there in every recorded rank.
    "threads",
    "native_threads",
    "hooks",
}


@pytest.fixture(scope="module")
def launcher() -> Iterator[LocalLauncher]:
    launcher = LocalLauncher()
    try:
        yield launcher
    finally:
        launcher.close()


@pytest.fixture
def looks(launcher: LocalLauncher, tmp_path: Path) -> dict[int, dict[str, Any]]:
    run_dir, seen = tmp_path / "run", tmp_path / "seen"
    seen.mkdir()
    plan = make_plan(
        run_dir,
        "start_conditions_program.py",
        seen,
        "more",
        environment={"TORCH_DISTRIBUTED_DEBUG": "INFO"},
    )
    job = launcher.start(plan)
    try:
        exits = all_exits(job)
    finally:
        job.end()
    errors = "\n".join(exit.stderr.read_text() for exit in exits.values())
    assert {exit.code for exit in exits.values()} == {0}, errors
    return {r: json.loads((seen / f"{r}.json.done").read_text()) for r in (0, 1)}


def _as_in_the_foreground() -> None:
    for ignored in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_DFL)


def test_a_rank_looks_like_a_fresh_interpreter(
    looks: dict[int, dict[str, Any]], tmp_path: Path
) -> None:
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    names = ("TORCH_DISTRIBUTED_DEBUG", "OMP_NUM_THREADS")
    subprocess.run(
        [sys.executable, PROGRAMS / "start_conditions_program.py", fresh, "more"],
        env={**os.environ, **{name: looks[0]["environment"][name] for name in names}},
        check=True,
        timeout=280,
        # A shell ignores some of them in what it sends to the background, and nohup another.
        preexec_fn=_as_in_the_foreground,
    )
    wanted = json.loads((fresh / "0.json.done").read_text())
    wanted["argv"][1] = looks[0]["argv"][1]
    wanted["orig_argv"][1] = looks[0]["orig_argv"][1]
    for rank in (0, 1):
        for name in wanted.keys() - MEANT_TO_DIFFER:
            assert looks[rank][name] == wanted[name], name


def test_a_rank_has_its_own_everything(looks: dict[int, dict[str, Any]]) -> None:
    for rank, own in looks.items():
        assert own["session"] == [True, True]
        assert own["buffering"] == [True, True]
        assert own["frames"] == ["start_conditions_program.py", "warm_parent.py"]
        environment = own["environment"]
        assert own["c_environment_temporary"] == environment["HANGLAB_RUNTIME"]
        assert environment["RANK"] == environment["LOCAL_RANK"] == str(rank)
        assert environment["WORLD_SIZE"] == environment["LOCAL_WORLD_SIZE"] == "2"
        streams = own["descriptors"]
        assert streams["0"] == "/dev/null"
        assert streams["1"].endswith(f"/log/rank{rank}.out")
        assert streams["2"].endswith(f"/log/rank{rank}.err")
    assert not set(looks[0]["random"]) & set(looks[1]["random"])


def test_a_rank_inherits_no_descriptor(looks: dict[int, dict[str, Any]]) -> None:
    for own in looks.values():
        inherited = {
            number: target
            for number, target in own["descriptors"].items()
            if int(number) > 2
            # The recorder's files and sockets are opened by the rank itself.
            and own["environment"]["HANGLAB_CASE"] not in target
            and not target.startswith(("socket:", "/proc/"))
        }
        # The recorder keeps one in reserve, so that it can write where the job has used all up.
        opened = [target for target in inherited.values() if target == "/dev/null"]
        assert len(opened) <= 1
        rest = {target.split(":")[0] for target in inherited.values()} - {"/dev/null"}
        assert rest <= {"anon_inode", "pipe"}
        assert not any("hanglab-" in target for target in inherited.values())


@pytest.mark.parametrize(
    ("way", "code", "number", "traces"),
    [
        ("return", 0, None, ["thread", "atexit"]),
        ("exit-3", 3, None, ["thread", "atexit"]),
        ("exit-text", 1, None, ["thread", "atexit"]),
        ("raise", 1, None, ["thread", "atexit"]),
        ("interrupt", None, signal.SIGINT, ["thread", "atexit"]),
        ("_exit-7", 7, None, []),
        ("kill", None, signal.SIGKILL, []),
        ("terminate", None, signal.SIGTERM, []),
        ("segfault", None, signal.SIGSEGV, []),
        ("abort", None, signal.SIGABRT, []),
    ],
)
def test_the_end_of_a_rank_is_reported(
    launcher: LocalLauncher,
    tmp_path: Path,
    way: str,
    code: int | None,
    number: int | None,
    traces: list[str],
) -> None:
    trace = tmp_path / "trace"
    job = launcher.start(make_plan(tmp_path / "run", "endings_program.py", way, trace))
    try:
        exits = all_exits(job)
    finally:
        job.end()
    assert (exits[0].code, exits[0].signal) == (code, number)
    assert (exits[1].code, exits[1].signal) == (0, None)
    assert (trace.read_text().split() if trace.exists() else []) == traces
    assert (tmp_path / "run/log/rank0.out").read_text() == "on its way\n"
    errors = exits[0].stderr.read_text()
    if way == "exit-text":
        assert errors.endswith("sorry\n")
    if way == "raise":
        assert errors.endswith("Broken: on purpose\n")
        assert "KeyError: 'missing'" in errors
        assert "hanglab/harness" not in errors and "launchers" not in errors


def test_functions_of_a_scenario_run_in_their_file(launcher: LocalLauncher, tmp_path: Path) -> None:
    script = tmp_path / "small_scenario.py"
    script.write_text(
        "import torch, torch.distributed as dist\n"
        "def small(job):\n"
        "    total = torch.ones(1)\n"
        "    dist.all_reduce(total)\n"
        "    print(job.rank, job.faulty, job.seed, total.item(), __name__, __file__)\n"
    )
    plan = make_plan(tmp_path / "run", "", script=script, function="small", seed=7, faulty=False)
    job = launcher.start(plan)
    try:
        exits = all_exits(job)
    finally:
        job.end()
    assert [exits[rank].code for rank in (0, 1)] == [0, 0], exits[0].stderr.read_text()
    assert (tmp_path / "run/log/rank1.out").read_text().split() == [
        "1", "False", "7", "2.0", "small_scenario", str(script),
    ]  # fmt: skip


@pytest.mark.long
def test_what_is_read_early_gets_a_warm_process_of_its_own(
    launcher: LocalLauncher, tmp_path: Path
) -> None:
    script = tmp_path / "hash_script.py"
    script.write_text("import sys; print(sys.flags.hash_randomization, hash('hanglab'))")
    outputs = []
    for seed in ("0", "0", "17"):
        run_dir = tmp_path / f"run{len(outputs)}"
        plan = make_plan(run_dir, "", script=script, environment={"PYTHONHASHSEED": seed})
        job = launcher.start(plan)
        try:
            all_exits(job)
        finally:
            job.end()
        outputs.append((run_dir / "log/rank0.out").read_text())
    assert outputs[0] == outputs[1] != outputs[2]


def test_many_jobs_at_once(launcher: LocalLauncher, tmp_path: Path) -> None:
    script = tmp_path / "sums.py"
    script.write_text(
        "import sys, torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "total = torch.full((1,), float(sys.argv[1]))\n"
        "dist.all_reduce(total)\n"
        "print(total.item())\n"
        "dist.destroy_process_group()\n"
    )
    results: dict[int, str] = {}

    def run(number: int) -> None:
        plan = make_plan(tmp_path / str(number), "", number, script=script)
        job = launcher.start(plan)
        try:
            all_exits(job)
        finally:
            job.end()
        results[number] = (plan.log_dir / "rank1.out").read_text()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(280)
    assert results == {number: f"{2.0 * number}\n" for number in range(4)}


@pytest.mark.long
def test_further_modules_can_be_warm(launcher: LocalLauncher, tmp_path: Path) -> None:
    told = []
    for number, environment in enumerate(({}, {"HANGLAB_WARM_IMPORTS": "tabnanny,not_there"})):
        run_dir = tmp_path / str(number)
        plan = make_plan(
            run_dir, "imported_program.py", "tabnanny", "not_there", environment=environment
        )
        job = launcher.start(plan)
        try:
            all_exits(job)
        finally:
            job.end()
        told.append((run_dir / "log" / "rank0.out").read_text().split())
    assert told == [[], ["tabnanny"]]
