"""Sets exception hooks of its own and lets threads and the main program raise."""

import os
import sys
import threading


def own_thread_hook(args):
    print("thread", args.exc_type.__name__, flush=True)


def own_hook(type_, value, traceback):
    print("main", type_.__name__, flush=True)


def fail():
    raise ValueError("in a thread")


threading.Thread(target=fail, name="helper").start()
if os.environ["REPLACE"] == "1":
    # The recorder's hook is gone now; what happens must be written all the same.
    sys.excepthook = own_hook
raise KeyError("at the top")
