"""Builds the recorder's extension module, where there is what that takes.

Nothing needs it: the recorder has the same in Python, which costs the job a few
microseconds more.  So whatever goes wrong here is said in a line, and no error.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

#: Of the module's source, below the root of the repository.
SOURCE = Path("recorder", "rank", "native", "writer.c")
#: Made of the source and left beside it for an editable installation; belongs into no archive.
SUFFIX = ".so"
_FLAGS = ("-O2", "-fPIC", "-shared", "-fno-strict-aliasing", "-fwrapv", "-fvisibility=hidden")
_TIMEOUT_S = 120.0


class NotBuilt(Exception):
    """There is no module; the text says why."""


def module_name() -> str:
    """The file's name for this interpreter."""
    suffix = sysconfig.get_config_var("EXT_SUFFIX") or SUFFIX
    return SOURCE.stem + str(suffix)


def build(root: Path, folder: Path) -> Path:
    """Compile the module for this interpreter into a folder.  Raises NotBuilt."""
    if sys.platform != "linux" or sys.implementation.name != "cpython":
        raise NotBuilt(f"it is not made for {sys.implementation.name} on {sys.platform}")
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise NotBuilt("it is not made for an interpreter without the GIL")
    paths = sysconfig.get_paths()
    includes = dict.fromkeys((paths["include"], paths["platinclude"]))
    if not any(Path(include, "Python.h").is_file() for include in includes):
        raise NotBuilt(f"Python's headers are not in {paths['include']}")
    target = folder / module_name()
    with tempfile.TemporaryDirectory(dir=folder, prefix=".native-") as scratch:
        made = Path(scratch, target.name)
        problems = []
        for compiler in _compilers():
            command = [*compiler, *_FLAGS, *(f"-I{path}" for path in includes)]
            problem = _failure([*command, str(root / SOURCE), "-o", str(made)])
            problem = problem or _failure([sys.executable, "-c", _LOAD, str(made)])
            if not problem:
                # At once: a process that runs may have the one of before mapped.
                os.replace(made, target)
                return target
            problems.append(problem)
    raise NotBuilt(problems[0])


#: What is built has to be usable before it is installed.
_LOAD = """
import sys
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location("writer", sys.argv[1])
module = module_from_spec(spec)
spec.loader.exec_module(module)
module.Writer
"""


def _compilers() -> list[list[str]]:
    """Compilers that there are: the environment's, the one that made Python, the usual names.

    Raises NotBuilt without any.
    """
    named = (os.environ.get("CC"), sysconfig.get_config_var("CC"), "cc", "gcc", "clang")
    found: list[list[str]] = []
    for name in named:
        # Python's own may carry options that only its own build needs.
        words = shlex.split(str(name or ""))[: None if name == named[0] else 1]
        if words and words not in found and shutil.which(words[0]):
            found.append(words)
    if not found:
        raise NotBuilt("there is no C compiler")
    return found


def _failure(command: list[str]) -> str:
    """Last output of a command; "" for nothing."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"{command[0]}: {getattr(error, 'strerror', None) or error}"
    if not done.returncode:
        return ""
    said = done.stderr.strip().splitlines()
    because = next((line for line in said if "error" in line.lower()), said[-1] if said else "")
    return f"{command[0]} ended with {done.returncode}" + (f": {because}" if because else "")
