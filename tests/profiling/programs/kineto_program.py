"""Plays Kineto in a process of its own.

argv is the socket folder, the pid that it gives, and what it does beside asking:
``write`` leaves a trace where and when it is asked for one, as often as it is asked,
``stand`` asks once and stands still.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from played_kineto import Played, write_trace

process = Played(Path(sys.argv[1]), int(sys.argv[2]))
text = process.ask()
print("up", flush=True)
if sys.argv[3:] == ["stand"]:
    sys.stdin.read()
while not text:
    time.sleep(0.05)
    text = process.ask()
while sys.argv[3:] == ["write"]:
    if text:
        write_trace(text, process.pid)
    time.sleep(0.05)
    text = process.ask()
print(text.replace("\n", " "), flush=True)
sys.stdin.read()
process.close()
