"""How fast the analyzer is, against plain pickle.load and torchfrtrace, in one run.

    python benchmarks/analyzer.py [--full] [--no-torchfrtrace] [--keep FOLDER]

Dumps are generated: 2,000 entries a rank with 10 frames each, written and
memoised as torch does it, one rank missing.  ``--full`` goes on to 16,384 ranks
(7 GB of disk).  Every measurement is a process of its own.
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


@dataclass(frozen=True)
class Case:
    layout: str
    ranks: int
    torchfrtrace: bool = False


CASES = (
    Case("world", 8),
    Case("3d", TORCHFRTRACE_RANKS, torchfrtrace=True),
    Case("world", 1024),
    Case("3d", 1024),
)
FULL = (Case("3d", 4096), Case("3d", 16384))


def measure_analyzer(folder: Path) -> dict[str, object]:
    """Files to findings, in all processes that the loader starts."""
    import resource

    started = time.perf_counter()
    from hanglab.analyzer.communication.folder import picture_of_folder
    from hanglab.analyzer.heuristics.synchronization_findings import synchronization_findings

    picture, unusable = picture_of_folder(folder)
    findings = synchronization_findings(picture)
    seconds = time.perf_counter() - started
    kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    worker = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return {
        "seconds": seconds,
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
    return {"seconds": time.perf_counter() - started}


def measure_torchfrtrace(folder: Path) -> dict[str, object]:
    started = time.perf_counter()
    process = subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.flight_recorder.fr_trace",
            str(folder),
            "-p",
            "rank_",
            "--allow-incomplete-ranks",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        timeout=_LIMIT_S,
    )
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "failed": process.returncode != 0, "tail": process.stderr[-300:]}


MEASURES = {
    "analyzer": measure_analyzer,
    "pickle": measure_pickle,
    "torchfrtrace": measure_torchfrtrace,
}


def measured(what: str, folder: Path) -> dict[str, object]:
    """One measurement in a fresh process."""
    process = subprocess.run(
        [sys.executable, __file__, "--measure", what, str(folder)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    result: dict[str, object] = json.loads(process.stdout)
    return result


def run_case(case: Case, base: Path, with_torchfrtrace: bool) -> str:
    folder = base / f"{case.layout}-{case.ranks}"
    size = write_dumps(folder, case.layout, case.ranks, CULPRIT % case.ranks)
    try:
        plain = measured("pickle", folder)
        ours = measured("analyzer", folder)
        assert ours["culprits"] == [CULPRIT % case.ranks], ours
        assert ours["unusable"] == 0, ours
        upstream = "-"
        if case.torchfrtrace and with_torchfrtrace:
            theirs = measured("torchfrtrace", folder)
            ratio = float(str(theirs["seconds"])) / float(str(ours["seconds"]))
            upstream = f"{float(str(theirs['seconds'])):.1f} s ({ratio:.0f} x ours)"
            if theirs["failed"]:
                upstream += " and fails"
    finally:
        shutil.rmtree(folder)
    seconds, load = float(str(ours["seconds"])), float(str(plain["seconds"]))
    return (
        f"| {case.layout} | {case.ranks:,} | {size / case.ranks / 1000:.0f} KB | {seconds:.2f} s "
        f"| {seconds / case.ranks * 1000:.2f} ms | {load:.2f} s | {seconds / load:.2f} "
        f"| {upstream} | {float(str(ours['mib'])):,.0f} MiB |"
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
    columns = ("layout", "ranks", "dump", "hanglab", "per rank", "pickle.load", "ratio")
    print("| " + " | ".join((*columns, "torchfrtrace", "memory")) + " |")
    print("|---|---|---|---|---|---|---|---|---|")
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
