"""A rank of several nodes: imports torch, waits until all are there, runs the program.

``python -m hanglab.harness.launchers.nodes.gated_rank GATE SCRIPT FUNCTION [ARGUMENT...]``;
an empty FUNCTION runs the script as ``__main__``.  GATE is a descriptor from
which one line comes: the variables that are known only when all nodes are
there, as a JSON object.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import sys
from contextlib import suppress
from pathlib import Path

from hanglab.harness.rank import entry

#: What nearly every program imports, so that it is done while other nodes are still made.
_USEFUL = ("torch", "torch.distributed", "hanglab.harness.rank.job")


def main() -> None:
    gate, script, function = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    os.set_inheritable(gate, False)
    if function or _mentions_torch(script):
        for name in _USEFUL:
            with suppress(Exception):  # the program shall raise it
                importlib.import_module(name)
    with open(gate, encoding="utf-8") as file:
        line = file.readline()
    if not line:
        raise SystemExit(1)  # the node ends
    for name, value in json.loads(line).items():
        os.environ.setdefault(name, value)
    sys.argv = [script, *sys.argv[4:]]
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = str(Path(script).parent)
    if not function:
        runpy.run_path(script, run_name="__main__")
        return
    try:
        entry.call(Path(script), function)
    except Exception as error:
        entry.report(error)
        raise SystemExit(1) from None


def _mentions_torch(script: str) -> bool:
    with suppress(OSError):
        return b"torch" in Path(script).read_bytes()
    return True


if __name__ == "__main__":
    main()
