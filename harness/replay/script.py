"""The script that makes a Program's calls: each line of the original's has one of its own."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from hanglab.analyzer.recorded_endings import EndingKind
from hanglab.analyzer.replayable import ReplayableJob, goes_on, small_sizes
from hanglab.harness.program_calls import OTHER, ROOTED, call_text, called_operation
from hanglab.harness.rank_endings import (
    arguments_of,
    definitions_of,
    function_of,
    imports_of,
)
from hanglab.recorder.case.backends import backend_of

_HEAD = '''"""Makes the calls of a recorded job; written by `hanglab replay`."""

IMPORTS
PROGRAM = json.loads(Path(__file__).with_name("program.json").read_text())
DEVICE = torch.device("cpu")
if PROGRAM["backend"] == "nccl":
    DEVICE = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    torch.cuda.set_device(DEVICE)
DTYPES = {
    "Float": torch.float32, "Double": torch.float64, "Half": torch.float16,
    "BFloat16": torch.bfloat16, "Long": torch.int64, "Int": torch.int32,
    "Byte": torch.uint8, "Char": torch.int8, "Bool": torch.bool,
}


class Call:
    """Arguments of one call: tensors of the rank's own size, and of the whole group."""

    def __init__(self, group, members, numel, dtype, root, peer, reduction, splits):
        self.group = group
        self.root = None if root is None else members[root]
        self.peer = None if peer is None else members[peer]
        self.own = torch.zeros(numel, dtype=DTYPES.get(dtype, torch.uint8), device=DEVICE)
        self.whole = torch.zeros(numel * len(members), dtype=self.own.dtype, device=DEVICE)
        self.other = torch.zeros_like(self.whole)
        self.reduction = getattr(dist.ReduceOp, reduction.upper())
        self.sends, self.receives = splits or (None, None)
        if splits:
            self.whole = self.whole.new_zeros(sum(self.sends))
            self.other = self.whole.new_zeros(sum(self.receives))
        at_root = self.root == int(os.environ["RANK"])
        self.parts = list(self.whole.chunk(len(members))) if at_root and numel else None
        self.result = [torch.zeros_like(self.own) for _ in members]


'''
_TAIL = """

def main():
    rank = int(os.environ["RANK"])
    dist.init_process_group(PROGRAM["backend"])
    groups = []
    for place, (members, description) in enumerate(PROGRAM["groups"]):
        default = place == PROGRAM["default"]
        groups.append(
            dist.group.WORLD if default else dist.new_group(members, group_desc=description)
        )
    if PROGRAM["backend"] != "gloo":
        # Communicators are made in the first call, and the job's had been made long before.
        for group, (members, _) in zip(groups, PROGRAM["groups"]):
            if rank in members:
                dist.barrier(group=group)
    running = []
    left = []
    ending, before = PROGRAM["endings"][rank], PROGRAM["before_stop"][rank]
    began = time.monotonic()
    for turn, call in enumerate(PROGRAM["calls"][rank]):
        site, group, numel, dtype, root, peer, reduction, splits, way, at = call
        members = PROGRAM["groups"][group][0]
        call = Call(groups[group], members, numel, dtype, root, peer, reduction, splits)
        time.sleep(max(0.0, began + at - time.monotonic()))
        if before and turn == before["turn"]:
            ENDINGS[before["name"]](*before["arguments"])
        work = SITES[site](call)
        if way == "waits":
            work.wait()
        else:
            (running if way == "goes on" else left).append((call, work))
        if ending and turn == ending["turn"]:
            wait_for(running)
            if before and turn < before["turn"]:
                ENDINGS[before["name"]](*before["arguments"])
            ENDINGS[ending["name"]](*ending["arguments"])
    wait_for(running)
    if ending:
        ENDINGS[ending["name"]](*ending["arguments"])


def wait_for(running):
    for _, work in running:
        work.wait()
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


main()
"""
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
    kinds = {one.kind for one in (*job.endings.values(), *job.before_stop.values())}
    sites: dict[tuple[int, str], int] = {}
    differences = _differences(job, backend)
    replaced: set[str] = set()
    begin = min((c.created_ns for mine in job.calls for c in mine), default=0)
    rows: list[list[list[object]]] = []
    for rank, mine in enumerate(job.calls):
        rows.append([])
        for call in mine:
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
            rows[-1].append(
                [
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
                ]
            )
    if replaced:
        differences.append(f"{', '.join(sorted(replaced))} run as {OTHER}")
    everybody = list(range(len(job.calls)))
    default = next((n for n, g in enumerate(job.groups) if list(g.members) == everybody), None)
    program = {
        # Of an emulated device a script asks as of the real one.
        "backend": backend_of(backend).behaves_as or backend,
        "groups": [[list(g.members), g.description] for g in job.groups],
        "default": default,
        "calls": rows,
        "endings": [_ending(job, rank) for rank in range(len(job.calls))],
        "before_stop": [_before_stop(job, rank) for rank in range(len(job.calls))],
    }
    body = [
        f"def site_{n}(call):\n    return {call_text(op, posted=True, **_PARTS)}\n"
        for (_, op), n in sites.items()
    ]
    table = f"\nSITES = [{', '.join(f'site_{n}' for n in sites.values())}]\n"
    needed = sorted({"json", "os", "time", *imports_of(kinds)} - {"torch.utils.data"})
    imports = "".join(f"import {module}\n" for module in needed)
    imports += "from pathlib import Path\n\nimport torch\nimport torch.distributed as dist\n"
    if "torch.utils.data" in imports_of(kinds):
        imports += "import torch.utils.data\n"
    ends = [*definitions_of(kinds), _STAND_STILL]
    names = [function_of(kind) for kind in EndingKind if kind in kinds]
    called = dict.fromkeys([*filter(None, names), "stand_still"])
    ends.append(f"ENDINGS = {{{', '.join(f'{json.dumps(name)}: {name}' for name in called)}}}")
    (folder / "replay.py").write_text(
        _HEAD.replace("IMPORTS", imports)
        + "\n\n".join(body)
        + table
        + "\n\n"
        + "\n\n\n".join(ends)
        + "\n"
        + _TAIL
    )
    (folder / "program.json").write_bytes(msgspec.json.encode(program))
    return differences


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


def _before_stop(job: ReplayableJob, rank: int) -> dict[str, object] | None:
    """The function that a rank calls before the first call that it does not come back from."""
    done, calls = job.before_stop.get(rank), job.calls[rank]
    if done is None:
        return None
    turn = next((n for n, call in enumerate(calls) if not call.finished), len(calls))
    return {"name": function_of(done.kind), "arguments": arguments_of(done), "turn": turn}


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
