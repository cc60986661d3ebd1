"""The program that warm ranks are forked from; its module body is their outermost frame.

Run by path, with the number of the control socket's descriptor.
"""

import sys

if not getattr(sys.flags, "safe_path", False):
    del sys.path[0]  # this folder: its modules must not shadow anybody's

from hanglab.harness.launchers import forked_process, warm_imports
from hanglab.harness.scenarios import rank_entry

birth = warm_imports.wait_for_birth(int(sys.argv[1]))
try:
    forked_process.grow_up(birth)
    if birth.function is None:
        exec(forked_process.script_code(birth.script), sys.modules["__main__"].__dict__)
    else:
        rank_entry.call(birth.script, birth.function)
except Exception as error:
    rank_entry.report(error)
    raise SystemExit(1) from None
