"""Its children end as they are told; then it fails, and asks for their ends at last."""

import atexit
import os
import signal
import subprocess
import sys


def child(*words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", *words], stdin=subprocess.PIPE)


sound = child("")
killed = child("input()")
living = child("input()")
os.waitid(os.P_PID, sound.pid, os.WEXITED | os.WNOWAIT)
killed.kill()
os.waitid(os.P_PID, killed.pid, os.WEXITED | os.WNOWAIT)


@atexit.register
def ask() -> None:
    living.send_signal(signal.SIGTERM)
    print(killed.pid, sound.wait(), killed.wait(), living.wait(), flush=True)


raise ValueError("of its own")
