"""Plays Kineto in a process of its own: argv is the socket folder and the pid that it gives."""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from played import Played

process = Played(Path(sys.argv[1]), int(sys.argv[2]))
text = process.ask()
print("up", flush=True)
while not text:
    time.sleep(0.05)
    text = process.ask()
print(text.replace("\n", " "), flush=True)
sys.stdin.read()
process.close()
