"""The program that warm ranks are forked from; its module body is their outermost frame.

Run by path, with the number of the control socket's descriptor.
"""

import sys

if not getattr(sys.flags, "safe_path", False):
    del sys.path[0]  # this folder: its modules must not shadow anybody's

from hanglab.harness.launchers import forked_process, warm_imports
from hanglab.harness.rank import entry

spec = warm_imports.wait_for_rank(int(sys.argv[1]))
try:
    forked_process.initialize_rank(spec)
    if spec.function is None:
        exec(forked_process.script_code(spec.script), sys.modules["__main__"].__dict__)
    else:
        entry.call(spec.script, spec.function)
except Exception as error:
    entry.report(error)
    raise SystemExit(1) from None
