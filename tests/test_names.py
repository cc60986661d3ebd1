"""The words: one class for one name, and docstrings that begin with what a thing is or does."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("analyzer", "recorder", "harness", "tools")

#: Two frameworks have a callback each, and NVIDIA gave both one name.
SAME_BY_INTERFACE = {"StragglerDetectionCallback"}

#: Questions and comparisons, where a noun or a verb would say it.
NO_BEGINNING = re.compile(r"(What|Which|Who|Whether|When|Where|Why|How|The same)\b")


def _trees(rooms: tuple[str, ...]) -> Iterator[tuple[Path, ast.Module]]:
    for room in rooms:
        for path in sorted((ROOT / room).rglob("*.py")):
            yield path.relative_to(ROOT), ast.parse(path.read_bytes())


def _is_trial(path: Path) -> bool:
    """True in the room that says again, by itself, what the analyzer says of jobs."""
    return path.parts[:2] == ("harness", "trials")


def test_a_class_has_a_name_of_its_own() -> None:
    places = defaultdict(list)
    for path, tree in _trees(ROOMS):
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not _is_trial(path):
                # A private class is read beside the public one of its name.
                places[node.name.lstrip("_")].append(f"{path}:{node.lineno}")
    assert len(places) > 500
    several = {name: found for name, found in places.items() if len(found) > 1}
    assert set(several) <= SAME_BY_INTERFACE, several


def test_docstrings_begin_with_what_a_thing_is_or_does() -> None:
    seen = 0
    questions = []
    for path, tree in _trees((*ROOMS, "scenarios", "benchmarks")):
        for node in ast.walk(tree):
            if isinstance(
                node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
            ) and (text := ast.get_docstring(node)):
                seen += 1
                if NO_BEGINNING.match(text):
                    questions.append(f"{path}:{getattr(node, 'lineno', 1)}: {text[:60]}")
    assert seen > 3000
    assert not questions, "\n".join(questions)
