"""Runs a script as it is and counts what each of its statements does; started as a rank's script.

``counting_program.py SCRIPT [ARGUMENT ...]`` leaves ``rank<r>.json`` in HANGLAB_MUTATION_TRUTH: for
each statement how often it ran, for how long, how many operations it made itself and
with all that it called, and which functions of torch.distributed the script called with which
group and peer.  Groups count their operations themselves, those of DistributedDataParallel and
of functional collectives too.
"""

# hanglab: no branches
from __future__ import annotations

import ast
import functools
import inspect
import json
import os
import sys
import time
import types
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

_CALLED = (
    *("all_reduce", "broadcast", "reduce", "all_gather", "all_gather_into_tensor", "gather"),
    *("scatter", "reduce_scatter", "reduce_scatter_tensor", "all_to_all", "all_to_all_single"),
    *("barrier", "send", "recv", "isend", "irecv", "new_group", "broadcast_object_list"),
    *("all_gather_object", "gather_object", "scatter_object_list"),
)
_MESSAGES = frozenset({"send", "recv", "isend", "irecv"})
#: Known before the script's own ``__file__`` can take its place.
_THIS_FILE = sys._getframe().f_code.co_filename
#: A group's own count of its operations; torch's annotations leave it out.
_COUNTED = "_get_sequence_number_for_group"
#: Code within a statement, which is no statement of its own.
_WITHIN = frozenset({"<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>", "<lambda>"})
#: Of more the further ones say nothing new.
_MOST_CALLS = 2000


class StatementCount:
    """Counts of one statement."""

    def __init__(self) -> None:
        self.hits = 0
        self.seconds = 0.0
        self.own = 0
        self.all = 0
        self.messages = 0

    def as_json(self) -> dict[str, float]:
        return {
            "hits": self.hits,
            "seconds": self.seconds,
            "own": self.own,
            "all": self.all,
            "messages": self.messages,
        }


class Open:
    """A frame of the script, and the statement that it is in."""

    def __init__(self) -> None:
        self.line = 0
        self.began = 0.0
        self.operations = 0


class StatementCounter:
    def __init__(self, script: str, source: bytes) -> None:
        self.script = script
        tree = ast.parse(source)
        self.first_lines = first_lines(tree)
        #: Last line of each `with`, whose first one comes again where it is left.
        self.withs = {
            node.lineno: node.end_lineno or node.lineno
            for node in ast.walk(tree)
            if isinstance(node, ast.With)
        }
        self.statements: dict[int, StatementCount] = {}
        self.open: list[Open] = []
        self.groups: dict[str, list[int]] = {}
        self.calls: list[dict[str, object]] = []
        self.seen: set[object] = set()
        self.last_total = 0

    def trace(self, frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_filename != self.script or frame.f_code.co_name in _WITHIN:
            return None
        if event == "call":
            self.attribute()
            self.open.append(Open())
        elif event == "line":
            self.enter(self.first_lines.get(frame.f_lineno, frame.f_lineno))
        elif event == "return" and self.open:
            self.attribute()
            self.leave(self.open.pop())
        return self.trace

    def enter(self, line: int) -> None:
        self.attribute()
        if not self.open:
            self.open.append(Open())
        here = self.open[-1]
        if here.line == line:
            return  # another line of the same statement
        again = line < here.line <= self.withs.get(line, 0)
        self.leave(here)
        here.line, here.began, here.operations = line, time.perf_counter(), self.last_total
        self.statements.setdefault(line, StatementCount()).hits += not again

    def leave(self, here: Open) -> None:
        if here.line:
            counts = self.statements[here.line]
            counts.seconds += time.perf_counter() - here.began
            counts.all += self.last_total - here.operations

    def attribute(self) -> None:
        """Books what was communicated since the last look to the innermost statement."""
        total = self.operations()
        if total != self.last_total and self.open and self.open[-1].line:
            self.statements[self.open[-1].line].own += total - self.last_total
        self.last_total = total

    def operations(self) -> int:
        import torch.distributed as dist
        from torch.distributed import distributed_c10d

        if not dist.is_initialized():
            return self.last_total
        total = 0
        for group in list(distributed_c10d._world.pg_map):
            try:
                total += getattr(group, _COUNTED)()
            except RuntimeError:
                continue  # a backend that counts none
        return max(total, self.last_total)

    def note(self, name: str, called: Callable[..., Any], args: Any, kwargs: Any) -> None:
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and frame.f_code.co_filename == _THIS_FILE:
            frame = frame.f_back
        if frame is None or frame.f_code.co_filename != self.script:
            return
        line = self.first_lines.get(frame.f_lineno, frame.f_lineno)
        if name in _MESSAGES:
            self.statements.setdefault(line, StatementCount()).messages += 1
        given = bound(called, args, kwargs)
        members = members_of(given.get("group")) if name != "new_group" else []
        peer = given.get("dst", given.get("src"))
        key = (line, name, tuple(members), peer)
        if key in self.seen or len(self.calls) >= _MOST_CALLS:
            return
        self.seen.add(key)
        self.calls.append({"line": line, "function": name, "members": members, "peer": peer})

    def report(self) -> dict[str, object]:
        return {
            "rank": int(os.environ.get("RANK", "0")),
            "statements": {line: counts.as_json() for line, counts in self.statements.items()},
            "calls": self.calls,
            "groups": [list(members) for members in self.groups.values()],
        }


def bound(called: Callable[..., Any], args: Any, kwargs: Any) -> dict[str, Any]:
    try:
        return inspect.signature(called).bind_partial(*args, **kwargs).arguments
    except TypeError:
        return {}


def members_of(group: Any) -> list[int]:
    import torch.distributed as dist

    if not dist.is_initialized() or isinstance(group, int):
        return []
    try:
        return list(dist.get_process_group_ranks(group if group is not None else dist.group.WORLD))
    except (KeyError, RuntimeError, ValueError):
        return []


def first_lines(tree: ast.Module) -> dict[int, int]:
    """Each line of a statement to its first; of compound ones those before their block."""
    lines: dict[int, int] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            last = body[0].lineno - 1 if body else node.end_lineno or node.lineno
            for line in range(node.lineno, last + 1):
                lines[line] = max(lines.get(line, 0), node.lineno)
    return lines


def wrap_functions(counter: StatementCounter) -> None:
    """Has the counter told of what the script itself calls."""
    import torch.distributed as dist
    from torch.distributed import distributed_c10d

    for name in _CALLED:
        called = getattr(dist, name, None)
        if called is None:
            continue

        def wrapper(*args: Any, _name: str = name, _called: Any = called, **kwargs: Any) -> Any:
            counter.note(_name, _called, args, kwargs)
            made = _called(*args, **kwargs)
            if _name == "new_group":
                keep_groups(counter, distributed_c10d)
            return made

        setattr(dist, name, functools.wraps(called)(wrapper))


def keep_groups(counter: StatementCounter, c10d: Any) -> None:
    for group, name in list(c10d._world.pg_names.items()):
        counter.groups.setdefault(str(name), members_of(group))


def main() -> None:
    script = os.path.abspath(sys.argv[1])
    with open(script, "rb") as file:
        source = file.read()
    code = compile(source, script, "exec", dont_inherit=True)
    assert isinstance(code, CodeType)
    counter = StatementCounter(script, source)
    wrap_functions(counter)
    sys.argv = sys.argv[1:]
    sys.path[0] = os.path.dirname(script)
    module = types.ModuleType("__main__")
    module.__file__ = script
    sys.modules["__main__"] = module
    path = os.path.join(os.environ["HANGLAB_MUTATION_TRUTH"], f"rank{os.environ['RANK']}.json")
    sys.settrace(counter.trace)
    try:
        exec(code, module.__dict__)
    finally:
        sys.settrace(None)
        from torch.distributed import distributed_c10d

        keep_groups(counter, distributed_c10d)
        with open(path, "w") as report:
            json.dump(counter.report(), report)


if __name__ == "__main__":
    main()
