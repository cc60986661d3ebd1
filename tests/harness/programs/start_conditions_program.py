"""Writes down all that a program can see of how it was started."""

import atexit
import gc
import json
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import threading

import numpy
import torch
import torch.distributed as dist

handlers = {}
for number in signal.valid_signals():
    try:
        handlers[number] = repr(signal.getsignal(number)).split(" at ")[0]
    except ValueError:
        pass

descriptors = {}
for descriptor in os.listdir("/proc/self/fd"):
    try:
        descriptors[int(descriptor)] = os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        pass

frames = []
frame = sys._getframe()
while frame:
    frames.append(os.path.basename(frame.f_code.co_filename))
    frame = frame.f_back

looks = {
    "argv": sys.argv,
    "orig_argv": sys.orig_argv[1:],
    "name": __name__,
    "file": __file__,
    "main_is_this": sys.modules["__main__"].__dict__ is globals(),
    "main_names": sorted(n for n in globals() if n.startswith("__")),
    "spec": repr(__spec__),
    "path": sys.path,
    "folder": os.getcwd(),
    "environment": dict(os.environ),
    "c_environment_temporary": tempfile.gettempdir(),
    "handlers": handlers,
    "blocked_signals": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
    "start_method": multiprocessing.get_start_method(allow_none=True),
    "process_name": multiprocessing.current_process().name,
    "original_folder": multiprocessing.process.ORIGINAL_DIR,
    "torch_threads": torch.get_num_threads(),
    "debug_level": dist.get_debug_level().name,
    "gc": [gc.isenabled(), gc.get_threshold()],
    "threads": [thread.name for thread in threading.enumerate()],
    "native_threads": len(os.listdir("/proc/self/task")),
    "buffering": [sys.stdout.line_buffering, sys.stderr.line_buffering],
    "hooks": [
        sys.excepthook is sys.__excepthook__,
        threading.excepthook is threading.__excepthook__,
    ],
    "umask": os.umask(0o22),
    "nice": os.nice(0),
    "descriptors": descriptors,
    "frames": frames,
    "random": [random.random(), float(numpy.random.random()), torch.initial_seed()],
    "session": [os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid()],
    "children": open(f"/proc/self/task/{os.getpid()}/children").read(),
    "rank": os.environ.get("RANK", "0"),
}
target = os.path.join(sys.argv[1], f"{looks['rank']}.json")
with open(target, "w") as file:
    json.dump(looks, file)

atexit.register(lambda: os.rename(target, target + ".done"))
