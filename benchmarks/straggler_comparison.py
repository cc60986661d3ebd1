"""Three straggler detectors on the same faults, as a table in Markdown.

``python benchmarks/straggler_comparison.py`` makes an environment of its own beside
this one, with torch and the rest seen from here, installs nvidia-resiliency-ext and
traceml-ai into it (of their dependencies only what is not here; a column whose package cannot be
installed says so), and runs straggler_job.py with four gloo ranks for every fault
and detector.  NVIDIA's CUPTI module needs CUDA and is replaced by one that times no
kernel.  ``--only FAULT`` and ``--detector NAME`` run a part.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

JOB = Path(__file__).with_name("straggler_job.py")
RANKS = 4
STEPS = 50
#: Of faults that do not show at every step, so that there is as much of them to be seen.
STEPS_IF_SPARSE = 100
PATIENCE_S = 90
#: A job that hangs is given so long.
HANGING_S = 35
#: What is installed of each, without dependencies: all but the last ones are there already.
PACKAGES = {
    "nvrx": ("nvidia-resiliency-ext==0.4.1",),
    "traceml": ("traceml-ai==0.5.0", "nvidia-ml-py", "pyyaml"),
}
#: Faults as straggler_job.py calls them, and as the table does.
FAULTS = {
    "none": "nothing",
    "forward x2": "rank 2 forward x2",
    "forward x1.3": "rank 2 forward x1.3",
    "backward": "rank 2 backward 10 to 30 ms",
    "optimizer": "rank 2 optimizer +20 ms",
    "often": "rank 2 forward x2 in 40 % of steps",
    "every tenth": "rank 2 +200 ms every 10th step",
    "loader": "rank 1's loader slow",
    "loader and forward": "rank 1's loader slow and rank 2 forward x2",
    "all starved": "every rank's loader slow",
    "loader hangs": "rank 3's loader hangs",
}
SPARSE = ("often", "every tenth")


def environment(folder: Path) -> Path:
    """Interpreter of a new environment that sees this one's packages."""
    venv.create(folder, with_pip=False, symlinks=True)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    here = [sysconfig.get_path("purelib"), str(Path(__file__).parents[1] / "build/namespace")]
    (site / "beside.pth").write_text("\n".join(here) + "\n")
    return folder / "bin" / "python"


def install(python: Path, packages: Sequence[str]) -> str:
    """Text of what went wrong, "" if nothing did."""
    site = sysconfig.get_path("purelib", vars={"base": str(python.parents[1])})
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", site]
    done = subprocess.run([*command, *packages], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"{packages[0]} cannot be installed"


def steps_of(fault: str) -> str:
    return str(STEPS_IF_SPARSE if fault in SPARSE else STEPS)


def variables(**more: str) -> Mapping[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("HANGLAB")}
    return {**kept, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", **more}


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def run_ranks(python: Path, detector: str, fault: str) -> tuple[str, str]:
    """Standard output and errors of rank 0; the job is ended when it has taken too long."""
    shared = {"WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    command = [str(python), str(JOB), detector, fault, steps_of(fault)]
    ranks = []
    for rank in range(RANKS):
        pipe = subprocess.PIPE if rank == 0 else subprocess.DEVNULL
        ranks.append(
            subprocess.Popen(
                command,
                env=variables(**shared, RANK=str(rank)),
                stdout=pipe,
                stderr=pipe,
                text=True,
                start_new_session=True,
            )
        )
    try:
        return ranks[0].communicate(timeout=HANGING_S if "hangs" in fault else PATIENCE_S)
    except subprocess.TimeoutExpired:
        end(ranks)
        return ranks[0].communicate()
    finally:
        end(ranks)


def end(processes: list[subprocess.Popen[str]]) -> None:
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def ours(out: str, errors: str) -> str:
    told = last_json(out)
    if told is None:
        named = [line for line in errors.splitlines() if "has not reported" in line]
        return "no report" if not named else "**" + named[-1].partition(": ")[2] + "**"
    words = [f"{name}: {ranks(found)}" for name, found in sorted(told["flagged"].items())]
    if told["starvation"] is not None:
        everybody, slow = told["starvation"]
        if everybody:
            words.append("every rank is starved")
        elif slow:
            words.append(f"input: {ranks(slow)}")
    return "; ".join(words) or "none"


def nvrx(out: str, errors: str) -> str:
    told = last_json(out)
    if told is None:
        return "no report"
    return "; ".join(f"{name}: {ranks(f)}" for name, f in sorted(told["flagged"].items())) or "none"


def run_traceml(python: Path, fault: str) -> str:
    with tempfile.TemporaryDirectory() as logs:
        command = [
            str(python), "-m", "traceml_ai.launcher.cli", "run", "--mode", "summary",
            "--nproc-per-node", str(RANKS), "--master-port", free_port(),
            "--aggregator-port", free_port(), "--logs-dir", logs, "--run-name", "compared",
            str(JOB), "--args", "traceml", fault, steps_of(fault),
        ]  # fmt: skip
        process = subprocess.Popen(
            command,
            env=variables(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            out, _ = process.communicate(timeout=HANGING_S if "hangs" in fault else PATIENCE_S)
        except subprocess.TimeoutExpired:
            # Asked first: it has ranks of its own to end, and a summary to write.
            process.terminate()
            try:
                out, _ = process.communicate(timeout=20)
            except subprocess.TimeoutExpired:
                end([process])
                out, _ = process.communicate()
        finally:
            end([process])
    found = [
        line.strip(" |").partition(": ")[2].strip()
        for line in out.splitlines()
        if line.strip(" |").startswith(("Verdict:", "Why:"))
    ]
    return ". ".join(found) or "no summary"


def last_json(out: str) -> dict[str, Any] | None:
    lines = [line for line in out.splitlines() if line.startswith('{"')]
    return json.loads(lines[-1]) if lines else None


def ranks(found: list[int]) -> str:
    return ", ".join(map(str, found))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", choices=FAULTS, action="append", help="run this fault alone")
    parser.add_argument("--detector", choices=("hanglab", *PACKAGES), action="append")
    options = parser.parse_args()
    detectors = options.detector or ["hanglab", *PACKAGES]
    with tempfile.TemporaryDirectory() as folder:
        python = environment(Path(folder) / "environment")
        problems = {d: install(python, PACKAGES[d]) for d in detectors if d in PACKAGES}
        print("| injected | " + " | ".join(detectors) + " |", flush=True)
        print("|---" * (len(detectors) + 1) + "|", flush=True)
        for fault in options.only or FAULTS:
            cells = []
            for detector in detectors:
                if problems.get(detector):
                    cells.append(problems[detector])
                elif detector == "traceml":
                    cells.append(run_traceml(python, fault))
                else:
                    read = ours if detector == "hanglab" else nvrx
                    cells.append(read(*run_ranks(python, detector, fault)))
            print(f"| {FAULTS[fault]} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
