"""Finding scenarios: files are read as text, so neither they nor torch are imported."""

from __future__ import annotations

import ast
import difflib
import inspect
import io
import math
import os
import re
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hanglab.harness import capabilities
from hanglab.harness.errors import UsageError
from hanglab.harness.scenarios import declaration
from hanglab.harness.scenarios.declaration import Scenario
from hanglab.harness.scenarios.literals import (
    NotLiteral,
    call_arguments,
    offered_names,
    refuse_unknown,
    resolve,
)
from hanglab.harness.scenarios.number_bounds import MOST_RANKS, is_whole
from hanglab.recorder.case.backends import RUNNABLE

_MARK = re.compile(r"#+\s*(FAULT|SEEN)\b")
_PLACE = "a scenario is declared at the top of the file, above a plain function or on its own"
#: File systems allow 255 bytes, and what is written beside the folder adds to its name.
_LONGEST_NAME = 200


@dataclass(frozen=True)
class BrokenFile:
    """A file, or one declaration in it, that cannot be a scenario."""

    path: Path
    line: int
    reason: str

    def describe(self) -> str:
        return f"{self.path}:{self.line}: {self.reason}"


@dataclass
class Found:
    """Scenarios found in files.  ``plain`` are Python files without any declaration."""

    scenarios: list[Scenario] = field(default_factory=list)
    broken: list[BrokenFile] = field(default_factory=list)
    plain: list[Path] = field(default_factory=list)

    def add(self, other: Found) -> None:
        self.scenarios += other.scenarios
        self.broken += other.broken
        self.plain += other.plain


def project_folder() -> Path:
    """The folder of the scenarios that come with hanglab."""
    return Path(__file__).resolve().parents[2] / "scenarios"


def read_project() -> Found:
    """All scenarios that come with hanglab."""
    return read_folder(project_folder())


def read_folder(folder: Path) -> Found:
    """Declarations in all Python files below ``folder``; plain files there are passed over."""
    found = Found()
    for path in sorted(folder.rglob("*.py")):
        inside = read_file(path)
        inside.plain.clear()
        found.add(inside)
    return found


def read_file(path: Path) -> Found:
    """Declarations in one file.  Raises UsageError if it cannot be read."""
    path = path.absolute()
    try:
        source = path.read_bytes()
    except OSError as failure:
        raise UsageError(
            f"{path} cannot be read: {failure.strerror}",
            "Give a Python file or a scenario's name.",
        ) from failure
    if b"hanglab" not in source:
        return Found(plain=[path])
    try:
        tree = ast.parse(source, str(path))
        marks = _marks(source)
    except (SyntaxError, ValueError, tokenize.TokenError) as failure:
        line = getattr(failure, "lineno", None) or 1
        reason = f"{type(failure).__name__}: {getattr(failure, 'msg', failure)}"
        return Found(broken=[BrokenFile(path, line, reason)])
    found = Found()
    names = offered_names(tree)
    declarations = list(_declarations(tree, names))
    for node, call in declarations:
        others = [other for other, _ in declarations if other is not node]
        try:
            found.scenarios.append(_scenario(path, tree, node, call, names, marks, others))
        except NotLiteral as failure:
            found.broken.append(BrokenFile(path, failure.line, str(failure)))
        except (TypeError, ValueError) as failure:
            found.broken.append(BrokenFile(path, call.lineno, str(failure)))
    for line, reason in _misplaced(tree, names, {id(call) for _, call in declarations}):
        found.broken.append(BrokenFile(path, line, reason))
    if not found.scenarios and not found.broken:
        found.plain.append(path)
    return found


def select(wanted: Sequence[str], project: Found | None = None) -> Found:
    """Scenarios by name, file or folder; all that come with hanglab where nothing is named.

    ``FILE.py::NAME`` is one of those that a file declares.
    Raises UsageError for what does not exist, and where two scenarios have one name.
    """
    project = project if project is not None else read_project()
    found = Found()
    if not wanted:
        found.add(project)
    by_name = {scenario.name: scenario for scenario in project.scenarios}
    for word in dict.fromkeys(wanted):
        path = Path(word)
        if word in by_name:
            found.scenarios.append(by_name[word])
        elif path.is_dir():
            inside = read_folder(path)
            if not inside.scenarios and not inside.broken:
                raise UsageError(
                    f"No file in {path} declares a scenario.",
                    "A plain script is run by its own path.",
                )
            found.add(inside)
        elif ".py::" in word and not path.exists():
            found.add(_one_of(*word.rsplit("::", 1)))
        elif word.endswith(".py") or os.sep in word or path.is_file():
            found.add(read_file(path))
        else:
            raise UsageError(f"There is no scenario {word!r}.", _nearest(word, by_name))
    _refuse_namesakes(found.scenarios)
    return found


def _one_of(file: str, name: str) -> Found:
    """The scenario of that name in the file.  Raises UsageError if there is none."""
    inside = read_file(Path(file))
    scenarios = [scenario for scenario in inside.scenarios if scenario.name == name]
    # What is broken may be the very one.
    if not scenarios and not inside.broken:
        names = ", ".join(scenario.name for scenario in inside.scenarios)
        advice = f"There is {names}." if names else "A plain script is run by its path alone."
        raise UsageError(f"{file} declares no scenario {name!r}.", advice)
    return Found(scenarios=scenarios, broken=[] if scenarios else inside.broken)


def _nearest(word: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, names, n=3, cutoff=0.5)
    if not near:
        return "`hanglab list` prints all names; a file is given by its path."
    return f"Did you mean {' or '.join(near)}?  `hanglab list` prints all names."


def _refuse_namesakes(scenarios: list[Scenario]) -> None:
    seen: dict[str, Scenario] = {}
    for scenario in list(scenarios):
        first = seen.setdefault(scenario.name, scenario)
        if first is scenario:
            continue
        if (first.source, first.line) == (scenario.source, scenario.line):
            scenarios.remove(scenario)  # asked for by its name and by its file
            continue
        raise UsageError(
            f"Two scenarios are called {scenario.name}: {first.source}:{first.line} and "
            f"{scenario.source}:{scenario.line}.",
            "Rename one, or run the files one at a time.",
        )


Declared = ast.FunctionDef | ast.Expr


def _declarations(
    tree: ast.Module, names: dict[str, object]
) -> Iterator[tuple[Declared, ast.Call]]:
    """Decorated functions, and bare calls, at the top of the file."""
    for node in tree.body:
        calls: list[ast.expr] = []
        if isinstance(node, ast.FunctionDef):
            calls = node.decorator_list
        elif isinstance(node, ast.Expr):
            calls = [node.value]
        for call in calls:
            if not isinstance(call, ast.Call):
                continue
            if resolve(call.func, names) is declaration.scenario:
                assert isinstance(node, ast.FunctionDef | ast.Expr)
                yield node, call


def _misplaced(
    tree: ast.Module, names: dict[str, object], read: set[int]
) -> Iterator[tuple[int, str]]:
    """Line and reason for what is meant as a declaration, but is none that is read.

    ``read`` are the ids of the calls that are.
    """
    told = set(read)
    for node in ast.walk(tree):
        uses: list[ast.expr] = []
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            uses = node.decorator_list
        elif isinstance(node, ast.Call):
            uses = [node]
        for use in uses:
            called = use.func if isinstance(use, ast.Call) else use
            if id(use) not in told and resolve(called, names) is declaration.scenario:
                told.add(id(use))
                yield use.lineno, _why_misplaced(node, use)


def _why_misplaced(node: ast.AST, use: ast.expr) -> str:
    if isinstance(node, ast.ClassDef):
        return f"class {node.name} cannot be a scenario; {_PLACE}"
    if isinstance(node, ast.AsyncFunctionDef):
        return f"{node.name}() is async; {_PLACE}"
    if isinstance(node, ast.FunctionDef):
        if not isinstance(use, ast.Call):
            return f"@{ast.unparse(use)} of {node.name}() needs arguments, at least expect="
        return f"{node.name}() stands inside of something else; {_PLACE}"
    return f"{_PLACE}, not inside of something else"


def _scenario(
    path: Path,
    tree: ast.Module,
    node: Declared,
    call: ast.Call,
    names: dict[str, object],
    marks: dict[str, list[int]],
    others: list[Declared],
) -> Scenario:
    positional, named = call_arguments(call, names)
    refuse_unknown(declaration.scenario, named)
    bound = inspect.signature(declaration.scenario).bind(*positional, **named)
    bound.apply_defaults()
    given: dict[str, Any] = bound.arguments
    function = node.name if isinstance(node, ast.FunctionDef) else None
    name = given["name"] or function or (given["script"] and Path(given["script"]).stem)
    if not name:
        raise ValueError("a declaration without a function needs script= or name=")
    if given["script"] is None and function is None:
        raise ValueError("a declaration without a function needs script=")
    for backend in given["backends"]:
        if backend not in RUNNABLE:
            raise ValueError(f"there is no backend {backend!r}: {' and '.join(RUNNABLE)}")
    if given["script"] is not None:
        program = (path.parent / given["script"]).absolute()
        if not program.is_file():
            raise ValueError(f"script {program} does not exist")
        function, marks = None, _marks(program.read_bytes())
    else:
        program = path
        marks = {word: _lines_of(node, lines, others) for word, lines in marks.items()}
    control = given["control_script"]
    expect = given["expect"]
    scenario = Scenario(
        name=name,
        source=path,
        line=call.lineno,
        function=function,
        program=program,
        expect=expect,
        description=_first_sentence(tree, node),
        control_program=(path.parent / control).absolute() if control else None,
        world_size=given["world_size"],
        world_sizes=tuple(given["world_sizes"]),
        faults=tuple(given["faults"]),
        needs=tuple(given["needs"]),
        nodes=given["nodes"],
        gpus=int(given["gpus"]),
        backends=tuple(given["backends"]),
        hang_after_s=float(given["hang_after"]),
        reference=given["reference"],
        zoo=_words(given["zoo"]),
        packs=_words(given["packs"]),
        arguments=tuple(given["arguments"]),
        fault_lines=tuple(marks["FAULT"]),
        seen_lines=tuple(marks["SEEN"] or marks["FAULT"]),
    )
    _check(scenario)
    return scenario


def _words(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _check(scenario: Scenario) -> None:
    for name, sizes in (
        ("world_size", (scenario.world_size,)),
        ("world_sizes", scenario.world_sizes),
        ("nodes", () if scenario.nodes is None else (scenario.nodes,)),
    ):
        for size in sizes:
            if not is_whole(size) or not 1 <= size <= MOST_RANKS:
                raise ValueError(f"{name}= takes whole numbers from 1 to {MOST_RANKS}, not {size}")
    if scenario.control_program is not None and not scenario.control_program.is_file():
        raise ValueError(f"control_script {scenario.control_program} does not exist")
    if not isinstance(scenario.expect, declaration.Expect):
        raise TypeError("expect= must be an Expect(...)")
    if not re.fullmatch(r"[\w.-]+", scenario.name):
        raise ValueError(f"{scenario.name!r} cannot name a folder; use letters, digits and _ . -")
    length = len(os.fsencode(scenario.name))
    if length > _LONGEST_NAME:
        raise ValueError(f"the name has {length} bytes; {_LONGEST_NAME} are the most")
    for need in scenario.needs:
        if need not in capabilities.names():
            known = ", ".join(capabilities.names())
            raise ValueError(f"there is no capability {need!r}; there are {known}")
    if scenario.is_healthy and (scenario.faults or scenario.fault_lines):
        raise ValueError("a healthy scenario has no fault: say what is wrong, or mark none")
    for pack in scenario.packs:
        # It becomes a marker of pytest's.
        if not (isinstance(pack, str) and pack.isidentifier()):
            raise ValueError(f"packs= takes names of letters, digits and _, not {pack!r}")
    if not 0 < scenario.hang_after_s < math.inf:
        raise ValueError(f"hang_after= takes seconds, not {scenario.hang_after_s:g}")
    refusal = scenario.refuses_world(scenario.world_size)
    if refusal:
        raise ValueError(f"world_size={scenario.world_size}, but it {refusal}")
    if scenario.expect.location == "seen" and not scenario.seen_lines:
        raise ValueError(
            "no line is marked # FAULT or # SEEN; mark the culprit's line, or say location=None "
            "where a verdict can name none"
        )


def _first_sentence(tree: ast.Module, node: Declared) -> str:
    own = ast.get_docstring(node) if isinstance(node, ast.FunctionDef) else None
    text = own or ast.get_docstring(tree) or ""
    return " ".join(text.split("\n\n")[0].split())


def _lines_of(node: Declared, lines: list[int], others: list[Declared]) -> list[int]:
    """Marked lines in the declaration itself, else those outside of all others.

    A file that declares one scenario is all of it that scenario's.
    """
    if not others:
        return lines

    def within(line: int, span: Declared) -> bool:
        return span.lineno <= line <= (span.end_lineno or span.lineno)

    own = [line for line in lines if within(line, node)]
    return own or [line for line in lines if not any(within(line, other) for other in others)]


def _marks(source: bytes) -> dict[str, list[int]]:
    """Lines that carry a FAULT or SEEN comment."""
    marks: dict[str, list[int]] = {"FAULT": [], "SEEN": []}
    for token in tokenize.tokenize(io.BytesIO(source).readline):
        if token.type == tokenize.COMMENT:
            for word in _MARK.findall(token.string):
                marks[word].append(token.start[0])
    return marks
