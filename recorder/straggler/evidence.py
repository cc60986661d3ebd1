"""Leaves windows and reports in the Case of a recorded job."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path

import hanglab.recorder as recorder
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case import folders
from hanglab.recorder.straggler.reporting import Report
from hanglab.recorder.straggler.window import TimingWindow


def write_window(window: TimingWindow) -> None:
    """A line of the rank's ``straggler.jsonl``; nothing where the process is not recorded."""
    active = recorder._active
    if active is None:
        return
    head = json.dumps({"kind": "window", "at": _now()}).encode()
    _append(active.folder, head[:-1] + b"," + window.to_json()[1:])


def write_report(report: Report) -> None:
    """Writes this rank's report on the others: who is missing, and what stands out."""
    active = recorder._active
    if active is None:
        return
    line = {
        "kind": "report",
        "at": _now(),
        "number": report.number,
        "unasked": report.unasked,
        "slow": sorted({slow.rank for slow in report.slow_sections()}),
        "missing": [
            {
                "rank": m.rank,
                "since_s": round(m.since_s, 3),
                "last_window": m.last_window,
                "text": str(m),
            }
            for m in report.missing.values()
        ],
    }
    _append(active.folder, json.dumps(line).encode())


def _append(folder: Path, line: bytes) -> None:
    with contextlib.suppress(OSError):
        folders.append_line(folder / files.STRAGGLER.name, line)


def _now() -> dict[str, int]:
    return {"wall_ns": time.time_ns(), "mono_ns": time.monotonic_ns()}
