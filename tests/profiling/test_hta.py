"""Traces of a real job load in the real Holistic Trace Analysis."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from installed import needs, needs_torch

from hanglab.recorder.profiling.traces import Check, finish

pytestmark = [needs("hta", "pip install --no-deps HolisticTraceAnalysis"), needs_torch]

_TRACE = """
import sys, torch
with torch.profiler.profile() as profiler:
    for _ in range(3):
        torch.nn.Linear(8, 8)(torch.randn(4, 8)).sum().backward()
profiler.export_chrome_trace(sys.argv[1])
"""
#: In a process of its own: it starts a pool of its own.
_LOAD = """
import sys
from hta.trace_analysis import TraceAnalysis
if __name__ == "__main__":
    traces = TraceAnalysis(trace_dir=sys.argv[1]).t.traces
    print({rank: len(frame) > 0 for rank, frame in sorted(traces.items())})
"""


@pytest.mark.long
def test_each_rank_is_found_and_has_its_events(tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    folder.mkdir()
    for rank in range(2):
        raw = tmp_path / f"raw{rank}.json"
        subprocess.run([sys.executable, "-c", _TRACE, str(raw)], check=True, timeout=280)
        target = folder / f"rank{rank}.here.7.pt.trace.json"
        checked = finish(Check(str(raw), str(target), rank, 2, "here"))
        assert checked.ok, checked.reason
    program = tmp_path / "load.py"
    program.write_text(_LOAD)
    loaded = subprocess.run(
        [sys.executable, str(program), str(folder)],
        check=True,
        timeout=280,
        capture_output=True,
        text=True,
    )
    assert loaded.stdout.splitlines()[-1] == "{0: True, 1: True}", loaded.stderr
