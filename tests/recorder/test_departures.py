"""How a rank's Python leaves is written down, and it leaves as it did without."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
        timeout=60,
        check=False,
    )


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
    (rank,) = CaseReader(tmp_path / "case").ranks
    found = [(one.how, one.code, one.frame.line if one.frame else None) for one in rank.departures]
    assert found == told
