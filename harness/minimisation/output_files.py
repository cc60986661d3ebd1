"""The two files that a minimisation leaves: a script, and beside it a scenario."""

from __future__ import annotations

import keyword
import os
import re
from pathlib import Path

from hanglab.harness.errors import UsageError
from hanglab.harness.jobs.run_folder import ArtifactsError


class OutputFiles:
    """Files that are not there yet: nothing is overwritten.

    Raises UsageError, and ArtifactsError for a folder that may not be written to.
    """

    def __init__(self, script: Path) -> None:
        if script.suffix != ".py":
            raise UsageError(f"{script} is no Python file.", "Give a name that ends in .py.")
        self.script = script
        self.scenario = script.with_name(f"{script.stem}_scenario.py")
        for path in (self.script, self.scenario):
            if path.exists():
                raise UsageError(
                    f"{path} is there already, and nothing is overwritten.",
                    "Give another name with -o, or remove that file first.",
                )
        folder = script.absolute().parent
        if not folder.is_dir():
            raise UsageError(f"{folder} is no folder.", "Make it first, or give another one.")
        if not os.access(folder, os.W_OK):
            raise ArtifactsError(f"{folder} may not be written to.")

    @property
    def name(self) -> str:
        """Name of the scenario."""
        name = re.sub(r"\W", "_", self.script.stem)
        return f"hang_{name}" if not name.isidentifier() or keyword.iskeyword(name) else name
