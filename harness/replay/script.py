"""The script that makes a Program's calls: each line of the original's has one of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path

import msgspec

from hanglab.analyzer.program.program import ProgramGroup, in_order
from hanglab.analyzer.recorded_endings import EndingKind
from hanglab.analyzer.replayable import ReplayableJob, goes_on, small_sizes
from hanglab.analyzer.source_positions import SourcePosition
from hanglab.harness.program_calls import OTHER, ROOTED, call_text, called_operation
from hanglab.harness.rank_endings import (
    arguments_of,
    definitions_of,
    function_of,
    imports_of,
)
from hanglab.harness.replay.template import HEAD, TAIL
from hanglab.recorder.case.backends import backend_of

_STAND_STILL = """\
def stand_still():
    while True:
        time.sleep(1)"""
#: Of each call what stands in its text, by the class above.
_PARTS = {
    "own": "call.own",
    "whole": "call.whole",
    "parts": "call.result",
    "gathered": "call.result if call.parts else None",
    "scattered": "call.parts",
    "received": "call.other",
    "sent": "call.whole",
    "splits": ", call.receives, call.sends",
    "root": "call.root",
    "peer": "call.peer",
    "source": ", call.peer",
    "reduction": ", op=call.reduction",
    "group": ", group=call.group",
}


def write_script(
    job: ReplayableJob, folder: Path, *, backend: str, true_sizes: bool, speed: float
) -> list[str]:
    """Write ``replay.py`` and its ``program.json``; what differs from the job, in sentences."""
    sizes = small_sizes(job.calls)
    kinds = {one.kind for one in (*job.endings.values(), *chain(*job.before_stop.values()))}
    sites: dict[tuple[int, str], int] = {}
    differences = _differences(job, backend)
    replaced: set[str] = set()
    begin = min((c.created_ns for mine in job.calls for c in mine), default=0)
    by_loops = any(one.kind is EndingKind.LEFT_LOOP for one in job.endings.values())
    rows: list[list[list[object]]] = []
    last: list[list[object] | None] = []
    for rank, mine in enumerate(job.calls):
        rows.append([])
        for turn, call in enumerate(mine):
            action = call.action
            op = called_operation(action.op)
            if op != action.op:
                replaced.add(action.op)
            site = sites.setdefault((action.site, op), len(sites))
            root = action.root or 0 if op in ROOTED else None
            numel = action.numel if true_sizes else sizes[action.numel]
            at = (call.created_ns - begin) / 1e9 / speed if speed else 0.0
            way = "goes on" if goes_on(job, call) else "waits"
            if rank in job.endings and not call.finished:
                way = "is left"
            elif by_loops and way == "waits" and not call.finished:
                way = "stands"
            rows[-1].append(
                [
                    # Calls are no iterations; but who left a loop has made fewer of them there.
                    turn if by_loops else None,
                    site,
                    action.group,
                    max(numel, 0),
                    action.dtype,
                    root,
                    action.peer,
                    action.reduction or "sum",
                    action.splits,
                    way,
                    at,
                    action.thread,
                ]
            )
        last.append(_placed(job.positions.get(rank), job.positions, rows[-1]))
    if replaced:
        differences.append(f"{', '.join(sorted(replaced))} run as {OTHER}")
    everybody = list(range(len(job.calls)))
    default = next((n for n, g in enumerate(job.groups) if list(g.members) == everybody), None)
    program = {
        # Of an emulated device a script asks as of the real one.
        "backend": backend_of(backend).behaves_as or backend,
        "groups": [[list(g.members), g.description] for g in job.groups],
        "default": default,
        "created": [_created(job.groups, default, rank) for rank in range(len(job.calls))],
        "calls": rows,
        "last": last,
        "endings": [_ending(job, rank) for rank in range(len(job.calls))],
        "before_stop": [_before_stop(job, rank) for rank in range(len(job.calls))],
    }
    body = [
        f"def site_{n}(call):\n    return call.issued({call_text(op, posted=True, **_PARTS)})\n"
        for (_, op), n in sites.items()
    ]
    table = f"\nSITES = [{', '.join(f'site_{n}' for n in sites.values())}]\n"
    needed = sorted({"json", "os", "threading", "time", *imports_of(kinds)} - {"torch.utils.data"})
    imports = "".join(f"import {module}\n" for module in needed)
    imports += "from pathlib import Path\n\nimport torch\nimport torch.distributed as dist\n"
    if "torch.utils.data" in imports_of(kinds):
        imports += "import torch.utils.data\n"
    ends = [*definitions_of(kinds), _STAND_STILL]
    names = [function_of(kind) for kind in EndingKind if kind in kinds]
    called = dict.fromkeys([*filter(None, names), "stand_still"])
    ends.append(f"ENDINGS = {{{', '.join(f'{json.dumps(name)}: {name}' for name in called)}}}")
    (folder / "replay.py").write_text(
        HEAD.replace("IMPORTS", imports)
        + "\n\n".join(body)
        + table
        + "\n\n"
        + "\n\n\n".join(ends)
        + "\n"
        + TAIL.replace("LAST", _last_lines(job.positions))
    )
    (folder / "program.json").write_bytes(msgspec.json.encode(program))
    return differences


def _created(groups: Sequence[ProgramGroup], default: int | None, rank: int) -> list[int]:
    """Numbers of the groups that a rank makes, in order: of several of one name its own."""
    numbers = [number for number in range(len(groups)) if number != default]
    if not any(group.makers for group in groups):
        return numbers
    made: dict[str, int] = {}
    for number in numbers:
        name = groups[number].name
        if name not in made or rank in groups[number].makers:
            made[name] = number
    # Their names are the numbers under which they were made.
    return [made[name] for name in sorted(made, key=in_order)]


def _placed(
    position: SourcePosition | None,
    positions: Mapping[int, SourcePosition],
    rows: list[list[object]],
) -> list[object] | None:
    """Number the rank's last call by its iteration; taken out of ``rows`` if it is behind them."""
    if position is None:
        return None
    loops = any(one.behind or one.step for one in positions.values())
    if not loops or position.behind:
        row = rows.pop()[1:]
    if not loops:
        return [position.line, row]
    for kept in rows:
        kept[0] = 0
    if rows:
        rows[-1][0] = position.step
    return [0, row] if position.behind else None


def _last_lines(positions: Mapping[int, SourcePosition]) -> str:
    """The lines behind the loop, in the job's order, at which ranks make their last calls."""
    loops = any(one.behind or one.step for one in positions.values())
    places = {0 if loops else one.line for one in positions.values() if not loops or one.behind}
    if not places:
        return ""
    lines = ['place, last = PROGRAM["last"][rank] or (None, None)']
    for place in sorted(places):
        lines += [f"if place == {place}:", "    mine.make(*last)"]
    return "".join(f"    {line}\n" for line in lines)


def _ending(job: ReplayableJob, rank: int) -> dict[str, object] | None:
    """The function that ends a rank, and after which of its calls; behind its loop if it left that.

    None for a rank that waits in its calls, or ends as others do.
    """
    ending, calls = job.endings.get(rank), job.calls[rank]
    last = len(calls) - 1
    if ending is None:
        if rank in job.ended or not all(call.finished for call in calls):
            return None
        return {"name": "stand_still", "arguments": [], "turn": last}
    name = function_of(ending.kind)
    if name is None:
        return {"name": "stand_still", "arguments": [], "turn": None}
    return {"name": name, "arguments": arguments_of(ending), "turn": last}


def _before_stop(job: ReplayableJob, rank: int) -> list[dict[str, object]]:
    """Functions that a rank calls besides, and before which of its calls each.

    Of what was before the first of its calls that are left there is no place any more.
    """
    calls = job.calls[rank]
    stop = next((n for n, call in enumerate(calls) if not call.finished), len(calls))
    found: list[dict[str, object]] = []
    for done in job.before_stop.get(rank, ()):
        after = done.operations_after
        turn = stop if after is None else len(calls) - after
        if turn >= 0:
            name = function_of(done.kind)
            found.append({"name": name, "arguments": arguments_of(done), "turn": turn})
    return found


def _differences(job: ReplayableJob, backend: str) -> list[str]:
    if job.backend == backend:
        return []
    if backend_of(backend).behaves_as == job.backend:
        return [f"a thread of each rank stands for the device of {job.backend}"]
    if not backend_of(backend).blocking:
        return [
            f"{job.backend} has hosts wait where {backend} has a device run calls in order",
            f"{job.backend} compares sizes, and {backend} does not",
        ]
    return [
        f"{job.backend} enqueues on a device, which runs a group's calls in order; on gloo "
        "threads of the host run them",
        "gloo ends ranks whose tensors differ in size, where NCCL goes on or hangs",
        "no call is waited for before the next; which of several open ones a verdict names first "
        "may differ, so the original's has to be open in the replay",
    ]
