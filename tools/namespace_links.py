"""Build hook: maps the packages at the top of the repository below `hanglab`.

A wheel gets them as `hanglab/<package>`.  For an editable install the hook lays
one folder of directory links, and the install's `.pth` file names that folder:
the interpreter, type checkers and editors all follow plain paths, and a new
file is visible at once.

It also has the recorder's extension module built, into the wheel or beside its
source.  Without a compiler there is none, and a line that says so.
"""

from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGES = ("analyzer", "harness", "recorder", "scenarios")
#: Neither what an editable installation has built nor what it was built of is installed.
NOT_INSTALLED = (".c", ".pyc", ".so")


class NamespaceLinks(BuildHookInterface):  # type: ignore[type-arg]
    _scratch: tempfile.TemporaryDirectory[str] | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        if self.target_name != "wheel":
            return
        if version != "editable":
            build_data["force_include"].update(
                {
                    str(path): f"hanglab/{path.relative_to(root).as_posix()}"
                    for package in PACKAGES
                    for path in sorted((root / package).rglob("*"))
                    if path.is_file() and path.suffix not in NOT_INSTALLED
                }
            )
            self._add_native(root, build_data)
            return
        namespace = root / "build" / "namespace" / "hanglab"
        namespace.mkdir(parents=True, exist_ok=True)
        for package in PACKAGES:
            link = namespace / package
            if not link.is_symlink():
                link.symlink_to(Path("..", "..", "..", package), target_is_directory=True)
        self._build_native(root, None)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self._scratch is not None:
            self._scratch.cleanup()

    def _add_native(self, root: Path, build_data: dict[str, Any]) -> None:
        self._scratch = tempfile.TemporaryDirectory()
        made = self._build_native(root, Path(self._scratch.name))
        if made is not None:
            native = _native(root)
            place = native.SOURCE.parent.as_posix()
            build_data["force_include"][str(made)] = f"hanglab/{place}/{made.name}"
            build_data["pure_python"] = False
            build_data["infer_tag"] = True

    def _build_native(self, root: Path, folder: Path | None) -> Path | None:
        """The module for this interpreter, in a folder or else beside its source."""
        native = _native(root)
        beside = root / native.SOURCE.parent
        try:
            made: Path = native.build(root, folder or beside)
        except (native.NotBuilt, OSError) as error:
            if folder is None:
                # What an earlier state was built of is no longer what its source says.
                (beside / native.module_name()).unlink(missing_ok=True)
            self.app.display_warning(
                f"hanglab records with its code in Python; the module in C was not built: {error}"
            )
            return None
        return made


def _native(root: Path) -> Any:
    """tools/native.py; hatchling runs this file without a place to import from."""
    path = root / "tools" / "native.py"
    spec = importlib.util.spec_from_file_location("native", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
