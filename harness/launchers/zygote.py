"""The program that warm ranks are forked from; its module body is their outermost frame.

Run by path, with the number of the control socket's descriptor.
"""

import sys

if not getattr(sys.flags, "safe_path", False):
    del sys.path[0]  # this folder: its modules must not shadow anybody's

from hanglab.harness import entry
from hanglab.harness.launchers import newborn, warmth

birth = warmth.wait_for_birth(int(sys.argv[1]))
try:
    newborn.grow_up(birth)
    if birth.function is None:
        exec(newborn.script_code(birth.script), sys.modules["__main__"].__dict__)
    else:
        entry.call(birth.script, birth.function)
except Exception as error:
    entry.report(error)
    raise SystemExit(1) from None
