"""Plays hanglab: starts one job, tells when it is up, and ends it after the ranks have ended.

Arguments: launcher, run folder, announcement folder, ``wait`` or ``end``.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from hanglab.harness.launchers.protocol import JobPlan
from hanglab.harness.launchers.selection import make_launcher

# As in a terminal's foreground, even if whoever runs the tests ignores Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)
launcher = make_launcher(sys.argv[1])
run_dir = Path(sys.argv[2])
job = launcher.start(
    JobPlan(
        run_dir=run_dir,
        case_dir=run_dir / "case",
        script=Path(__file__).with_name("leftovers_program.py"),
        function=None,
        world_size=2,
        faulty=True,
        seed=0,
        backend="gloo",
        deadline_s=300,
        arguments=(sys.argv[3], sys.argv[4]),
    )
)
while job.alive():
    for exit in job.events(280):
        print(exit.rank, exit.code, exit.signal, flush=True)
job.end()
launcher.close()
print("closed", flush=True)
