"""Real jobs with ``hanglab watch`` beside them: which hangs it tells of, and which healthy jobs.

    python benchmarks/watch_zoo.py [SUITE] [--least 4] [--names A,B]
    python benchmarks/watch_zoo.py --injected scenarios/hardware
    python benchmarks/watch_zoo.py --injected scenarios/network --launcher docker

Runs the plain scripts that ``hanglab list --as-suite SUITE`` writes (a suite of its own without
one) under torchrun, recorded by nobody; or scenarios whose fault strikes from outside, which
``hanglab run`` stages, one after the other, and records.  Those in containers are nobody's children
here: the watch is the host's then, or that of ``--below PID`` (a process that adopts orphans, and
started Docker), and counts are jobs whose processes name the scenario's file.  Limits are shorter
than those of the service, in proportion; the rest is the same.
"""

from __future__ import annotations

import argparse
import contextlib
import http.server
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hanglab.recorder.case import evidence_files
from hanglab.recorder.case.reader import CaseReader

#: Seconds for a hang to be told, and for a healthy script to end.
HUNG_S = 180.0
ENDS_S = 200.0
#: Limit of the recorder of a staged scenario, longer than the watch's.  A watch that finds such a
#: job at rest has it captured by that recorder, which takes its own time to be sure; the run then
#: ends the job, and the watch still judges the Case.
RECORDED_S = 15.0
JUDGED_S = 20.0
#: In containers a job is up later, and found when it hangs already.
RECORDED_IN_CONTAINERS_S = 60.0

EVENTS: list[dict[str, Any]] = []


class Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        EVENTS.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *arguments: Any) -> None:
        pass


def below(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError):
                fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(name))
    found, front = [], [pid]
    while front:
        front = [child for parent in front for child in children.get(parent, [])]
        found += front
    return found


#: Whether an event is of the job that is looked at.
Ours = Callable[[dict[str, Any]], bool]


def told(ours: Ours) -> list[dict[str, Any]]:
    """Stops of one job."""
    return [one for one in EVENTS if one["event"] == "stopped" and ours(one)]


def runs(event: dict[str, Any], script: Path) -> bool:
    """True if a rank of the event's Case was started with the script."""
    if not event["case"]:
        return False
    ranks = CaseReader(Path(event["case"])).ranks
    processes = [rank.read(evidence_files.PROCESS) for rank in ranks]
    return any(process is not None and str(script) in process.argv for process in processes)


def torchrun(script: Path, ranks: int) -> list[str]:
    return [
        sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks),
        "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", "--rdzv-id", script.stem,
        str(script),
    ]  # fmt: skip


def staged(scenario: Path, launcher: str) -> list[str]:
    words = [sys.executable, "-m", "hanglab.harness.cli", "run", str(scenario), "--no-control"]
    words += ["--launcher", launcher] if launcher else []
    words += ["--backend", "gloo,nccl-emulated", "--first-backend"]
    limit = RECORDED_IN_CONTAINERS_S if launcher else RECORDED_S
    return [*words, "--hang-after", f"{limit:g}", "--deadline", f"{2 * HUNG_S:g}"]


def run(
    command: list[str], ours: Ours, injected: bool, hangs: bool, folder: Path
) -> tuple[str, float]:
    """Outcome of one command, and the seconds that it took."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    environment.pop("RANK", None)
    begun = time.monotonic()
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    outcome, ended = "not told", 0.0
    try:
        while time.monotonic() - begun < (HUNG_S if hangs else ENDS_S):
            if found := told(ours):
                outcome = f"{found[0]['status']} {found[0]['cause']} {found[0]['culprits']}"
                break
            if process.poll() is not None:
                outcome = f"ended with {process.returncode}"
                ended = ended or time.monotonic()
                if not injected or time.monotonic() - ended > JUDGED_S:
                    break
            time.sleep(0.1)
    finally:
        if injected and process.poll() is None:
            # It takes back what its fault has done.
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
        for pid in [*below(process.pid), process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
    return outcome, time.monotonic() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suite", type=Path, nargs="?")
    parser.add_argument("--least", default="4")
    parser.add_argument("--names", default="")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--injected", type=Path, nargs="+", default=[])
    parser.add_argument("--launcher", default="")
    parser.add_argument("--below", type=int, default=0)
    parser.add_argument("--out", type=Path, help="keeps the Cases there")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        if options.suite is None and not options.injected:
            options.suite = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "suite"
            words = [sys.executable, "-m", "hanglab.harness.cli", "list", "--as-suite"]
            subprocess.run([*words, str(options.suite)], check=True)
        measure(options)


def measure(options: argparse.Namespace) -> None:
    names = set(filter(None, options.names.split(",")))
    if options.injected:
        files = sorted(
            file
            for path in options.injected
            for file in (path.rglob("*.py") if path.is_dir() else [path])
            if "faults=[" in file.read_text()
        )
        rows = [{"file": str(file.resolve()), "observable": "hangs"} for file in files]
        options.jobs = 1
    else:
        rows = json.loads((options.suite / "suite.json").read_text())["scripts"]
    if names:
        rows = [
            row for row in rows if names & {Path(row["file"]).stem, row["file"].rpartition("_")[0]}
        ]
    receiver = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=receiver.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        words = [sys.executable, "-m", "hanglab.harness.cli", "watch"]
        below = options.below or (0 if options.launcher else os.getpid())
        words += ["--below", str(below)] if below else []
        words += ["--out", str(options.out.resolve())] if options.out else []
        words += ["--least", options.least, "--state", name, "--webhook"]
        watch = subprocess.Popen(
            [*words, f"http://127.0.0.1:{receiver.server_address[1]}/"],
            stderr=(folder / "watch.txt").open("wb"),
        )
        rested, captured = [], []
        counts: dict[str, list[str]] = {"told": [], "not told": [], "false alarms": [], "quiet": []}
        counts["ended by itself"] = []

        def one(row: dict[str, Any]) -> None:
            hangs = row["observable"] == "hangs"
            if options.injected:
                EVENTS.clear()
                script = Path(row["file"])
                command = staged(script, options.launcher)
            else:
                script = options.suite.resolve() / row["file"]
                command = torchrun(script, row["ranks"])

            def ours(event: dict[str, Any]) -> bool:
                if options.injected:
                    return not options.launcher or runs(event, script)
                return bool(event["job"] == script.stem)

            outcome, seconds = run(command, ours, bool(options.injected), hangs, folder)
            found = told(ours)
            rested.extend(event["rested_s"] for event in found)
            captured.extend(event["captured_s"] for event in found)
            kind = ("told" if found else "not told") if hangs else None
            if options.injected and outcome.startswith("ended"):
                kind = "ended by itself"
            counts[kind or ("false alarms" if found else "quiet")].append(script.stem)
            wanted = (
                ""
                if options.injected
                else f"{row.get('class', 'healthy')} {row.get('culprits', [])}"
            )
            print(f"{script.stem:<44} {outcome:<44} {wanted:<36} {seconds:5.1f} s", flush=True)

        try:
            with ThreadPoolExecutor(options.jobs) as pool:
                list(pool.map(one, rows))
        finally:
            watch.send_signal(signal.SIGTERM)
            watch.wait()
            print((folder / "watch.txt").read_text()[-2000:])
    for kind, scripts in counts.items():
        shown = ", ".join(scripts) if kind in ("not told", "false alarms") else ""
        print(f"{kind}: {len(scripts)} {shown}")
    if rested:
        for what, seconds in {"rest": rested, "then to the Case's verdict": captured}.items():
            print(f"{what}: median {statistics.median(seconds):.1f} s, most {max(seconds):.1f} s")
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
