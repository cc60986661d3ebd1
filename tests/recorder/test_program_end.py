"""How a rank's Python leaves is written down, and it leaves as it did without."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case.reader import CaseReader
from hanglab.recorder.rank import hook_dir

FORKED = """
import os
child = os.fork()
if child == 0:
    os._exit(5)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
THREAD = """
import sys, threading
thread = threading.Thread(target=sys.exit, args=(9,))
thread.start()
thread.join()
"""
SPAWNED = """
import multiprocessing, os, sys
if __name__ == "__main__":
    for target in (sys.exit, os._exit):
        child = multiprocessing.get_context("spawn").Process(target=target, args=(5,))
        child.start()
        child.join()
        print(child.exitcode)
"""
DESCRIBED = """
import inspect, os, sys
print(inspect.signature(sys.exit), inspect.signature(os._exit), sys.exit.__module__)
"""
AT_EXIT = """
import atexit, sys
def leave():
    try:
        sys.exit(6)
    except SystemExit:
        pass
atexit.register(leave)
sys.exit(3)
"""
AT_ONCE_AT_EXIT = """
import atexit, os
def leave():
    os._exit(6)
atexit.register(leave)
"""
CAUGHT = """
import sys
try:
    sys.exit(4)
except SystemExit as error:
    print(error.code)
"""


def run(script: Path, case: Path | None) -> subprocess.CompletedProcess[bytes]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HANGLAB_")}
    recorded = {"HANGLAB_CASE": str(case), "PYTHONPATH": str(hook_dir())} if case else {}
    return subprocess.run(
        [sys.executable, script],
        env={**kept, "RANK": "0", "WORLD_SIZE": "1", **recorded},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=280,
        check=False,
    )


def program_ends(case: Path) -> list[tuple[str, int | None, int | None]]:
    (rank,) = CaseReader(case).ranks
    return [
        (one.how, one.code, one.frame.line if one.frame else None)
        for one in rank.read(files.PROGRAM_ENDS)
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("import sys\nsys.exit()", [("sys.exit", 0, 2), ("end", None, None)]),
        ("import sys\nsys.exit(3)", [("sys.exit", 3, 2), ("end", None, None)]),
        ("import sys\nsys.exit('so long')", [("sys.exit", 1, 2), ("end", None, None)]),
        ("import sys\n\nsys.exit(-1)", [("sys.exit", 255, 3), ("end", None, None)]),
        ("import sys\nsys.exit((2, 3))", [("sys.exit", 1, 2), ("end", None, None)]),
        ("import sys\nsys.exit(1, 2)", [("sys.exit", 1, 2), ("end", None, None)]),
        ("exit(6)", [("exit", 6, 1), ("end", None, None)]),
        ("quit()", [("quit", 0, 1), ("end", None, None)]),
        ("import os\nos._exit(7)", [("os._exit", 7, 2)]),
        ("import os\nos._exit()", [("os._exit", 0, 2), ("end", None, None)]),
        ("raise SystemExit(8)", [("end", None, None)]),
        ("print('done')", [("end", None, None)]),
        ("1 / 0", [("end", None, None)]),
        (CAUGHT, [("sys.exit", 4, 4), ("end", None, None)]),
        (FORKED, [("end", None, None)]),
        (THREAD, [("end", None, None)]),
        (SPAWNED, [("end", None, None)]),
        (DESCRIBED, [("end", None, None)]),
        (AT_EXIT, [("sys.exit", 3, 9), ("end", None, None)]),
        (AT_ONCE_AT_EXIT, [("end", None, None), ("os._exit", 6, 4)]),
    ],
)
def test_departure_is_told_and_nothing_else_changes(tmp_path, text, told):
    script = tmp_path / "train.py"
    script.write_text(text)
    plain = run(script, None)
    recorded = run(script, tmp_path / "case")
    assert (recorded.returncode, recorded.stdout) == (plain.returncode, plain.stdout)
    if "exit(1, 2)" not in text and "_exit()" not in text:  # their traceback tells of one more call
        assert recorded.stderr == plain.stderr
    assert program_ends(tmp_path / "case") == told


RANK_OF_A_FORK = """
import multiprocessing, os, sys
def work():
    os.environ.update(RANK="0", WORLD_SIZE="1")
    from hanglab.recorder.rank import start_from_environment
    start_from_environment()
    {leave}
child = multiprocessing.get_context("fork").Process(target=work)
child.start()
child.join()
sys.exit(child.exitcode)
"""


@pytest.mark.parametrize(
    ("leave", "code", "told"),
    [
        ("sys.exit(4)", 4, [("sys.exit", 4, 7), ("end", None, None)]),
        ("os._exit(5)", 5, [("os._exit", 5, 7)]),
        ("return", 0, [("end", None, None)]),
    ],
)
def test_what_multiprocessing_ends_its_child_with_is_not_the_rank_s_call(
    tmp_path, leave, code, told
):
    script = tmp_path / "train.py"
    script.write_text(RANK_OF_A_FORK.format(leave=leave))
    environment = {n: v for n, v in os.environ.items() if not n.startswith(("HANGLAB_", "RANK"))}
    done = subprocess.run(
        [sys.executable, script],
        env={**environment, "HANGLAB_CASE": str(tmp_path / "case")},
        timeout=280,
        check=False,
    )
    assert done.returncode == code
    assert program_ends(tmp_path / "case") == told


def test_a_rank_that_catches_every_call_does_not_fill_the_disk(tmp_path):
    text = "import sys\nfor code in range(250):\n    try:\n        sys.exit(code)\n"
    text += "    except SystemExit:\n        pass\nsys.exit(99)\n"
    script = tmp_path / "train.py"
    script.write_text(text)
    assert run(script, tmp_path / "case").returncode == 99
    found = program_ends(tmp_path / "case")
    assert len(found) < 100
    assert found[:2] == [("sys.exit", 0, 4), ("sys.exit", 1, 4)]
    assert found[-2:] == [("sys.exit", 99, 7), ("end", None, None)]
