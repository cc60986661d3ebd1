"""JUnit files of several runs as one."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from pathlib import Path

from hanglab.harness.errors import HanglabError, UsageError

_COUNTS = ("tests", "failures", "errors", "skipped")


class UnreadableJUnit(HanglabError, ValueError):
    """A file is not what pytest writes with ``--junitxml``."""

    advice = "Give a file that `pytest --junitxml FILE` has written."


def unite_junit(files: Sequence[Path]) -> ElementTree.Element:
    """All suites of tests of the files, each as it is, and their counts over all.

    Tests that are no scenarios are in every shard, and stay in the suite of each.  Raises
    UnreadableJUnit, and UsageError where a scenario is in two files.
    """
    united = ElementTree.Element("testsuites", name="hanglab")
    places: dict[tuple[str | None, str | None], int] = {}
    for number, path in enumerate(files):
        for suite in _suites(path):
            united.append(suite)
            for case in filter(_is_scenario, suite.iter("testcase")):
                name = case.get("name")
                first = places.setdefault((case.get("classname"), name), number)
                if first != number:
                    raise UsageError(
                        f"{name} is in both {files[first]} and {path}.",
                        "Give the file of each shard once.",
                    )
    suites = united.findall("testsuite")
    try:
        for count in _COUNTS:
            united.set(count, str(sum(int(suite.get(count) or 0) for suite in suites)))
        united.set("time", f"{sum(float(suite.get('time') or 0) for suite in suites):.3f}")
    except ValueError as error:
        raise UnreadableJUnit(
            f"A count in {', '.join(map(str, files))} is none: {error}."
        ) from error
    return united


def _suites(path: Path) -> list[ElementTree.Element]:
    try:
        root = ElementTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError) as error:
        raise UnreadableJUnit(f"{path} cannot be read: {error}.") from error
    if root.tag == "testsuite":
        return [root]
    if root.tag != "testsuites":
        raise UnreadableJUnit(f"{path} is no JUnit file: its root is {root.tag}.")
    return root.findall("testsuite")


def _is_scenario(case: ElementTree.Element) -> bool:
    return case.find("properties/property[@name='scenario']") is not None


def to_text(united: ElementTree.Element) -> str:
    ElementTree.indent(united)
    # ASCII with references, whatever the encoding of files is here.
    return ElementTree.tostring(united, xml_declaration=True).decode() + "\n"
