"""Stacks that somebody wrote with ``py-spy dump``, as text."""

from __future__ import annotations

import re
import sys
from pathlib import PurePosixPath

from hanglab.recorder.case.records import Clock, StackFrame, StackSample, ThreadStack

_PROCESS = re.compile(r"^Process (?P<pid>\d{1,9}): (?P<command>.*)$")
_PYTHON = re.compile(r"^Python v(?P<version>\d+\.\d+)")
_THREAD = re.compile(
    r"^Thread (?P<id>0x[0-9A-Fa-f]{1,16}|\d{1,18}) \((?P<state>[^)]*)\)(?:: \"(?P<name>.*)\")?$"
)
_FRAME = re.compile(r"^ {4}(?P<function>\S.*) \((?P<file>[^()]*?)(?::(?P<line>\d{1,9}))?\)$")
#: Packages that py-spy names without the folder in which they lie; torch is told from users' code.
_PACKAGES = frozenset({"torch", "torchgen", "functorch", "tqdm", "numpy"})


def stacks_in(text: str) -> list[StackSample]:
    """The stacks of each process in a text, all as if of a rank and of the time of the capture."""
    found: list[StackSample] = []
    version = ""
    for line in text.splitlines():
        if (process := _PROCESS.match(line)) is not None:
            found.append(StackSample(Clock(0, 0), int(process["pid"]), "rank", []))
        elif not found:
            continue
        elif (python := _PYTHON.match(line)) is not None:
            version = python["version"]
        elif (thread := _THREAD.match(line)) is not None:
            found[-1].threads.append(_thread(thread, found[-1].pid))
        elif found[-1].threads and (frame := _FRAME.match(line)) is not None:
            found[-1].threads[-1].frames.append(_frame(frame, version))
    return [one for one in found if one.threads]


def _thread(match: re.Match[str], pid: int) -> ThreadStack:
    number = int(match["id"], 16 if match["id"].startswith("0x") else 10)
    name, states = match["name"] or "", match["state"].split("+")
    return ThreadStack(
        frames=[],
        name=name,
        os_thread_id=number,
        main=name == "MainThread" or (not name and number == pid),
        active="active" in states,
        owns_gil="gil" in states,
    )


def _frame(match: re.Match[str], version: str) -> StackFrame:
    """A frame; of files that py-spy has shortened, where they lie as far as that is known."""
    function, file = match["function"].rpartition(".")[2], match["file"]
    top = PurePosixPath(file).parts[0].removesuffix(".py") if file else ""
    if file.startswith(("/", "<")):
        place = file
    elif top in _PACKAGES:
        place = f"/usr/lib/python{version or '3'}/site-packages/{file}"
    elif top in sys.stdlib_module_names:
        place = f"/usr/lib/python{version or '3.0'}/{file}"
    else:
        place = file
    return StackFrame(function, place, int(match["line"] or 0))
