"""Ends in the way that its first argument names; the second is a file that its exit writes."""

import atexit
import ctypes
import os
import signal
import sys
import threading


def trace(word):
    with open(sys.argv[2], "a") as file:
        file.write(word + "\n")


class Broken(Exception):
    pass


def deepest():
    try:
        {}["missing"]
    except KeyError as error:
        raise Broken("on purpose") from error


def late():
    if threading.main_thread().is_alive():
        threading.main_thread().join()
    trace("thread")


if os.environ.get("RANK", "0") == "0":
    atexit.register(trace, "atexit")
    threading.Thread(target=late).start()
    print("on its way")
    ways = {
        "return": lambda: None,
        "exit-3": lambda: sys.exit(3),
        "exit-text": lambda: sys.exit("sorry"),
        "raise": deepest,
        "interrupt": lambda: signal.raise_signal(signal.SIGINT),
        "_exit-7": lambda: os._exit(7),
        "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
        "terminate": lambda: os.kill(os.getpid(), signal.SIGTERM),
        "segfault": lambda: ctypes.string_at(0),
        "abort": os.abort,
    }
    ways[sys.argv[1]]()
