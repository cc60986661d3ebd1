"""Prints what the project requires, with the extras of its argument: a requirement a line.

The image installs these before the project, so that a changed file of the project
leaves the layer of its dependencies as it is.
"""

from __future__ import annotations

import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def read_requirements(pyproject: Path, extras: list[str]) -> list[str]:
    """Raises KeyError for an extra that the project does not have."""
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    found: list[str] = list(project["dependencies"])
    for extra in extras:
        found += project["optional-dependencies"][extra]
    return found


if __name__ == "__main__":
    wanted = [extra for extra in sys.argv[1].split(",") if extra]
    print("\n".join(read_requirements(Path(__file__).with_name("pyproject.toml"), wanted)))
