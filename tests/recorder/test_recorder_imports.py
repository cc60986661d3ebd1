"""What importing the recorder loads: it is in somebody else's training job.

Its time is a figure of `benchmarks/recorder.py`.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

#: The top names of what is loaded beside the interpreter's own, one a line.
LOADED = """
import sys
before = set(sys.modules)
import {module}
loaded = {{name.partition(".")[0] for name in set(sys.modules) - before}}
print(*sorted(loaded - set(sys.stdlib_module_names)), sep="\\n")
print(*sorted(name for name in sys.modules if name.count(".") == 1 and name.startswith("hanglab.")),
      sep="\\n")
"""


@pytest.mark.parametrize(
    "module", ["hanglab.recorder", "hanglab.recorder.rank", "hanglab.recorder.straggler"]
)
def test_importing_loads_no_package_of_others_and_no_other_room(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED.format(module=module)],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) <= {"hanglab", "hanglab.errors", "hanglab.recorder"}
