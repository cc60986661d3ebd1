"""Cost of a command before it does anything: `hanglab --help`, `analyze` on 4 and 8 ranks.

Each figure is a median of wall-clock seconds, and its ratio to the start of a
bare interpreter on the same machine at the same time.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from analyzer_dumps import write_dumps

ROUNDS = 11
#: What a person takes for "at once", in seconds.
LIMIT_S = 0.5
#: An installed command has its bytecode at hand, whatever the shell of a developer forbids.
BYTECODE = tempfile.mkdtemp(prefix="hanglab-bytecode-")
ENVIRONMENT = {**os.environ, "PYTHONPYCACHEPREFIX": BYTECODE}
ENVIRONMENT.pop("PYTHONDONTWRITEBYTECODE", None)
HANGLAB = Path(sys.executable).with_name("hanglab")


def seconds(command: list[str]) -> float:
    begun = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, env=ENVIRONMENT)
    return time.perf_counter() - begun


def a_case(folder: Path) -> Path:
    """The Case of a hung job of four ranks."""
    command = [HANGLAB, "run", "skipped_collective", "--no-control"]
    subprocess.run(command, cwd=folder, check=False, capture_output=True)
    case = folder / "runs" / "latest" / "skipped_collective" / "fault" / "0" / "case"
    if not (case / "manifest.json").is_file():
        raise SystemExit(f"no Case at {case}: does `hanglab run skipped_collective` work?")
    return case


def dumps_of_eight(folder: Path) -> Path:
    """Full rings of eight ranks, one of which is late."""
    write_dumps(folder / "dumps", "world", 8, 3)
    return folder / "dumps"


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        commands = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "hanglab --help": [str(HANGLAB), "--help"],
            "hanglab list": [str(HANGLAB), "list"],
            "analyze, Case of 4": [str(HANGLAB), "analyze", str(a_case(Path(folder)))],
            "analyze, 8 dumps": [str(HANGLAB), "analyze", str(dumps_of_eight(Path(folder)))],
        }
        for command in commands.values():
            seconds(command)
        times: dict[str, list[float]] = {name: [] for name in commands}
        # In turns, so that a busy moment of the machine falls on all of them.
        for _ in range(ROUNDS):
            for name, command in commands.items():
                times[name].append(seconds(command))
    shutil.rmtree(BYTECODE)
    medians = {name: statistics.median(taken) for name, taken in times.items()}
    bare = medians["python -c pass"]
    print(f"{'':20}{'seconds':>10}{'ratio':>8}")
    for name, median in medians.items():
        print(f"{name:20}{median:10.3f}{median / bare:8.1f}")
    return max(medians.values()) > LIMIT_S


if __name__ == "__main__":
    sys.exit(main())
