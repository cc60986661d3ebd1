"""Prints what the project requires with the given extras, one requirement a line.

    python requirements.py EXTRA,EXTRA [--without NAME]

The image installs these before the project, so that a changed file of the project
leaves the layer of its dependencies as it is.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def read_requirements(pyproject: Path, extras: list[str], without: str | None) -> list[str]:
    """Raises KeyError for an extra that the project does not have."""
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    found: list[str] = list(project["dependencies"])
    for extra in extras:
        found += project["optional-dependencies"][extra]
    return [line for line in found if re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0] != without]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("extras", help="separated by commas; may be empty")
    parser.add_argument("--without")
    options = parser.parse_args()
    extras = [extra for extra in options.extras.split(",") if extra]
    pyproject = Path(__file__).with_name("pyproject.toml")
    print("\n".join(read_requirements(pyproject, extras, options.without)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
