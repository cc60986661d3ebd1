"""Speed of the analyzer against plain pickle.load and torchfrtrace, in one run.

    python benchmarks/analyzer.py [--full] [--no-torchfrtrace] [--keep FOLDER]

Dumps are generated: 2,000 entries a rank with 10 frames each, written and
memoised as torch does it, all ranks present, one of them late.  ``--full`` goes on
to 16,384 ranks (7 GB of disk).  Every measurement is a process of its own; this
analyzer is measured before the others and behind them, and the slower one of the
two counts.  Beside its seconds stand those of processor time of all its processes,
and at the end how many processes of the machine wanted a core on average over the
last minute.

torchfrtrace is run with its cap on mismatches lifted: it takes sends and receives
in a group of more than two for missing ranks, and would give up after ten of
them, at one per cent of the work.  How many of the calls it went through is
counted, and where that is not nearly all, its time is not shown.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from analyzer_dumps import write_dumps

CULPRIT = 11
TORCHFRTRACE_RANKS = 512
_LIMIT_S = 1800.0
#: Share of the calls that torchfrtrace must have gone through; it loses some at the end.
ENOUGH = 0.95


@dataclass(frozen=True)
class Case:
    layout: str
    ranks: int
    torchfrtrace: bool = False


CASES = (
    Case("world", 8),
    Case("2d", TORCHFRTRACE_RANKS, torchfrtrace=True),
    Case("3d", TORCHFRTRACE_RANKS, torchfrtrace=True),
    Case("world", 1024),
    Case("3d", 1024),
)
FULL = (Case("3d", 4096), Case("3d", 16384))


def processor_seconds() -> float:
    """Processor time of this process and its children: other programs change it little."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def measure_analyzer(folder: Path) -> dict[str, object]:
    """Files to findings, in all processes that the loader starts."""
    import resource

    started = time.perf_counter()
    from hanglab.analyzer.causes.graph_findings import synchronization_findings
    from hanglab.analyzer.graph.dump_folder import wait_for_graph_of_folder

    graph, unusable = wait_for_graph_of_folder(folder)
    findings = synchronization_findings(graph)
    seconds = time.perf_counter() - started
    kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    worker = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return {
        "seconds": seconds,
        "processor": processor_seconds(),
        "culprits": [rank for finding in findings for rank in finding.culprits],
        "unusable": len(unusable),
        "mib": (kib + worker * (os.cpu_count() or 1)) / 1024,
    }


def measure_pickle(folder: Path) -> dict[str, object]:
    """pickle.load of the same files, one after the other."""
    started = time.perf_counter()
    for path in folder.iterdir():
        with path.open("rb") as file:
            pickle.load(file)
    return {"seconds": time.perf_counter() - started, "processor": processor_seconds()}


def measure_torchfrtrace(folder: Path) -> dict[str, object]:
    """Files to its flat database, without the import of torch."""
    import contextlib
    import resource

    from torch.distributed.flight_recorder.components.builder import build_db
    from torch.distributed.flight_recorder.components.config_manager import JobConfig
    from torch.distributed.flight_recorder.components.loader import read_dir

    words = [str(folder), "-p", "rank_", "--mismatch_cap", str(1 << 30)]
    started = time.perf_counter()
    with open(os.devnull, "w") as nothing, contextlib.redirect_stdout(nothing):
        config = JobConfig().parse_args(words)
        details, version = read_dir(config)
        entries = sum(len(dump["entries"]) for dump in details.values())
        database = build_db(details, config, version)
    return {
        "seconds": time.perf_counter() - started,
        "done": len(database.ncclcalls) / entries,
        "mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


MEASURES = {
    "analyzer": measure_analyzer,
    "pickle": measure_pickle,
    "torchfrtrace": measure_torchfrtrace,
}


def measured(what: str, folder: Path) -> dict[str, object]:
    """One measurement in a fresh process; ``failed`` with the reason if it has none."""
    process = subprocess.run(
        [sys.executable, __file__, "--measure", what, str(folder)],
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
    )
    if process.returncode:
        return {"failed": (process.stderr.strip().splitlines() or ["no reason given"])[-1]}
    result: dict[str, object] = json.loads(process.stdout)
    return result


def described(theirs: dict[str, object], ours: float) -> str:
    """Time that torchfrtrace took, or why it has no time."""
    if "failed" in theirs:
        return f"failed: {theirs['failed']}"
    done, seconds = float(str(theirs["done"])), float(str(theirs["seconds"]))
    if done < ENOUGH:
        return f"failed: gave up after {done:.0%} of the calls"
    return f"{seconds:.1f} s, {float(str(theirs['mib'])):,.0f} MiB ({seconds / ours:.0f} x ours)"


def run_case(case: Case, base: Path, with_torchfrtrace: bool) -> str:
    folder = base / f"{case.layout}-{case.ranks}"
    size = write_dumps(folder, case.layout, case.ranks, CULPRIT % case.ranks)
    try:
        # Nothing is measured while the files go to the disk.
        os.sync()
        runs = [measured("analyzer", folder)]
        plain = measured("pickle", folder)
        theirs = None
        if case.torchfrtrace and with_torchfrtrace:
            theirs = measured("torchfrtrace", folder)
        runs.append(measured("analyzer", folder))
        for ours in runs:
            assert "failed" not in ours, ours
            assert ours["culprits"] == [CULPRIT % case.ranks], ours
            assert ours["unusable"] == 0, ours
        # Once before the others and once behind: the slower one counts.
        ours = max(runs, key=lambda run: float(str(run["seconds"])))
        seconds, load = float(str(ours["seconds"])), float(str(plain["seconds"]))
        upstream = "-" if theirs is None else described(theirs, seconds)
    finally:
        shutil.rmtree(folder)
    return (
        f"| {case.layout} | {case.ranks:,} | {size / case.ranks / 1000:.0f} KB | {seconds:.2f} s "
        f"| {float(str(ours['processor'])):.2f} s | {load:.2f} s | {seconds / load:.2f} "
        f"| {upstream} | {float(str(ours['mib'])):,.0f} MiB | {os.getloadavg()[0]:.1f} |"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="go on to 16,384 ranks")
    parser.add_argument("--no-torchfrtrace", action="store_true")
    parser.add_argument("--only", help="cases whose name, such as 3d-1024, contains this")
    parser.add_argument("--keep", type=Path, help="where to write dumps (default: temporary)")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        what, folder = options.measure
        print(json.dumps(MEASURES[what](Path(folder))))
        return 0
    base = Path(tempfile.mkdtemp(prefix="hanglab-bench-", dir=options.keep))
    columns = ("layout", "ranks", "dump", "hanglab", "processor", "pickle.load", "ratio")
    print("| " + " | ".join((*columns, "torchfrtrace", "memory", "load")) + " |")
    print("|" + "---|" * 10)
    try:
        for case in CASES + (FULL if options.full else ()):
            if options.only and options.only not in f"{case.layout}-{case.ranks}":
                continue
            print(run_case(case, base, not options.no_torchfrtrace), flush=True)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
