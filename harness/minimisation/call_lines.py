"""The functions that make a program's calls: one for each line of the job that made some."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from hanglab.analyzer.program.program import P2P, Action, Program, ProgramGroup, in_order
from hanglab.analyzer.replayable import DTYPES
from hanglab.harness.program_calls import REDUCING, ROOTED, call_text, called_operation

#: Name of the default group in a dump, and what torch describes it as.
_DEFAULT = ("0", "default_pg")


@dataclass
class CallFunctions:
    """``lines`` define the groups and the functions; :meth:`row` says which call a rank makes."""

    lines: list[str] = field(default_factory=list)
    #: By line of the job: name of the function, and what its calls differ in.
    functions: dict[tuple[int, str], tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    groups: list[str] = field(default_factory=list)
    pending: bool = False
    #: Argument of a tensor's call that puts it on a device; "" for the host's memory.
    device: str = ""

    def row(self, program: Program, rank: int) -> list[tuple[str, ...]]:
        """Function and arguments of each call of the rank."""
        found = []
        for action in program.actions[rank]:
            name, differing = self.functions[_key(action)]
            values = _arguments(program, action, self.groups)
            words = (name, *(values[what] for what in differing))
            found.append(("in_thread", *words) if action.thread else words)
        return found


def entry(*words: str) -> str:
    """A tuple of these words, as Python writes it."""
    return f"({', '.join(words)}{',' if len(words) == 1 else ''})"


def call_functions(programs: Iterable[Program], *, on_device: bool = False) -> CallFunctions:
    """Functions for all calls of programs that have the same groups.

    ``on_device``: tensors are on the ``device`` that the script has.
    """
    every = list(programs)
    groups = every[0].groups
    found = CallFunctions(device=", device=device" if on_device else "")
    everybody = tuple(range(every[0].world_size))
    made: dict[str, str] = {}
    for number, group in enumerate(groups, start=1):
        name, description = group.name, group.description
        if group.members == everybody and (name == _DEFAULT[0] or description == _DEFAULT[1]):
            found.groups.append("")
            continue
        told = f", group_desc={json.dumps(description or name)}"
        first = next(n for n, one in enumerate(groups) if one.name == name)
        alike = [one for one in groups if one.name == name] if group.makers else [group]
        found.groups.append(f"group_{(first if group.makers else number - 1) + 1}")
        if alike[0] is group:
            made[found.groups[-1]] = f"{found.groups[-1]} = dist.new_group({_members(alike)}{told})"
    # Names count groups, and where ranks differ in them their order is what tells.
    names = {found.groups[number]: group.name for number, group in enumerate(groups)}
    order = list(made)
    if any(one.makers for one in groups):
        order.sort(key=lambda variable: in_order(names[variable]))
    found.lines += [made[variable] for variable in order]
    used: dict[tuple[int, str], list[tuple[Action, dict[str, str]]]] = {}
    for program in every:
        for action in (action for mine in program.actions for action in mine):
            values = _arguments(program, action, found.groups)
            used.setdefault(_key(action), []).append((action, values))
    for number, (key, uses) in enumerate(sorted(used.items(), key=_as_called), start=1):
        _define(found, number, key, uses, every[0])
    if found.pending:
        found.lines.insert(0, "pending = []")
    return found


def _members(alike: Sequence[ProgramGroup]) -> str:
    """Members of the group that a rank makes, of some of one name that others make."""
    text = str(list(alike[0].members))
    for other in alike[1:]:
        text = f"{list(other.members)} if rank in {list(other.makers)} else {text}"
    return text


def _as_called(item: tuple[tuple[int, str], object]) -> tuple[int, int, str]:
    (site, op), _ = item
    # Calls that no line of the job made come last.
    return int(site < 0), abs(site), op


def _define(
    found: CallFunctions,
    number: int,
    key: tuple[int, str],
    uses: list[tuple[Action, dict[str, str]]],
    program: Program,
) -> None:
    """Add a function whose parameters are what its calls differ in."""
    values: dict[str, set[str]] = {}
    for _, use in uses:
        for what, value in use.items():
            values.setdefault(what, set()).add(value)
    differing = tuple(what for what, known in values.items() if len(known) > 1)
    name = f"{key[1]}_{number}"
    found.functions[key] = name, differing
    shown = {what: what if what in differing else next(iter(k)) for what, k in values.items()}
    members = {len(program.groups[action.group].members) for action, _ in uses}
    found.lines += ["", "", f"def {name}({', '.join(differing)}):"]
    number_of = members.pop() if len(members) == 1 else None
    text = _call(key[1], shown, number_of, found.device)
    if shown["wait"] == "True":
        found.lines.append(f"    {text}")
        return
    found.pending = True
    blocking, posted = text, _call(key[1], shown, None, found.device, posted=True)
    if shown["wait"] == "False":
        found.lines.append(f"    pending.append({posted})")
        return
    if key[1] not in P2P:
        # One line for both, as call sites are compared.
        posted = posted.replace("async_op=True", "async_op=not wait")
        found.lines += [f"    work = {posted}", "    if not wait:", "        pending.append(work)"]
        return
    found.lines += ["    if wait:", f"        {blocking}", "    else:"]
    found.lines.append(f"        pending.append({posted})")


def _key(action: Action) -> tuple[int, str]:
    return action.site, called_operation(action.op)


def _arguments(program: Program, action: Action, names: list[str]) -> dict[str, str]:
    """Arguments of a call, as Python writes them."""
    group = program.groups[action.group]
    op = _key(action)[1]
    found = {"group": names[action.group] or "None", "wait": str(not action.overlap)}
    if op != "barrier":
        found["size"] = str(max(action.numel, 0))
        found["dtype"] = f"torch.{DTYPES.get(action.dtype, 'uint8')}"
    if op in ROOTED:
        found["root"] = str(group.members[action.root or 0])
    if op in REDUCING:
        found["reduction"] = f"dist.ReduceOp.{(action.reduction or 'sum').upper()}"
    if action.p2p:
        found["peer"] = "None" if action.peer is None else str(group.members[action.peer])
    if action.splits is not None:
        found["sends"], found["receives"] = (str(list(amounts)) for amounts in action.splits)
    return found


def _call(
    op: str, shown: dict[str, str], members: int | None, device: str, *, posted: bool = False
) -> str:
    group = "" if shown["group"] == "None" else f", group={shown['group']}"
    size, dtype = shown.get("size", "0"), shown.get("dtype", "torch.float32")
    told = ("" if dtype == "torch.float32" else f", dtype={dtype}") + device
    count = str(members) if members is not None else f"dist.get_world_size({shown['group']})"
    whole = str(members * int(size)) if members and size.isdigit() else f"{count} * {size}"
    tensor = f"torch.zeros({size}{told})"
    tensors = f"[{tensor} for _ in range({count})]"
    reduction = shown.get("reduction", "dist.ReduceOp.SUM")
    peer = shown.get("peer", "None")
    exchanged, splits = (f"torch.zeros({whole}{told})",) * 2, ""
    if "sends" in shown:
        sends, receives = shown["sends"], shown["receives"]
        exchanged = f"torch.zeros(sum({receives}){told})", f"torch.zeros(sum({sends}){told})"
        splits = f", {receives}, {sends}"
    at_root = f"{tensors} if rank == {shown.get('root')} else None"
    return call_text(
        op,
        posted=posted,
        own=tensor,
        whole=f"torch.zeros({whole}{told})",
        parts=tensors,
        gathered=at_root,
        scattered=at_root,
        received=exchanged[0],
        sent=exchanged[1],
        splits=splits,
        root=shown.get("root", "None"),
        peer=peer,
        source="" if peer == "None" else f", {peer}",
        reduction="" if reduction == "dist.ReduceOp.SUM" else f", op={reduction}",
        group=group,
    )
