"""Build hook: maps the packages at the top of the repository below `hanglab`.

A wheel gets them as `hanglab/<package>`.  For an editable install the hook lays
one folder of directory links, and the install's `.pth` file names that folder:
the interpreter, type checkers and editors all follow plain paths, and a new
file is visible at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGES = ("analyzer", "harness", "recorder", "scenarios")


class NamespaceLinks(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        if version != "editable":
            build_data["force_include"].update(
                {str(root / package): f"hanglab/{package}" for package in PACKAGES}
            )
            return
        namespace = root / "build" / "namespace" / "hanglab"
        namespace.mkdir(parents=True, exist_ok=True)
        for package in PACKAGES:
            link = namespace / package
            if not link.is_symlink():
                link.symlink_to(Path("..", "..", "..", package), target_is_directory=True)
