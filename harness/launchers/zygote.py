"""The program that warm ranks are forked from; its module body is their outermost frame.

Run by path, with the number of the control socket's descriptor.
"""

import sys

if not getattr(sys.flags, "safe_path", False):
    del sys.path[0]  # this folder: its modules must not shadow anybody's

from hanglab.harness import entry
from hanglab.harness.launchers import warmth

birth = warmth.wait_for_birth(int(sys.argv[1]))
try:
    warmth.become(birth)
    if birth.function is None:
        exec(warmth.code_of(birth), sys.modules["__main__"].__dict__)
    else:
        entry.call(birth.script, birth.function)
except Exception as error:
    warmth.report(error)
    raise SystemExit(1) from None
