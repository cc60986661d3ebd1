"""Calls of autograd's threads, as those of the thread that waits for them.

A backward pass runs on a thread for each device (``pt_autograd_0`` and so on, by
``Engine::thread_init`` of ``torch/csrc/autograd/engine.cpp``), while the one that asked for it
waits: the two take turns, on the same streams.  So what either issues is one order, which the ring
keeps; only threads that nobody waits for have orders of their own.  Which thread waits no entry
tells: it is taken for the one that calls before and after them, as it does in each round unless it
calls nothing itself.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hanglab.analyzer.flight_recorder.columns import Entries

_AUTOGRAD = "pt_autograd_"


def as_calls_of_waiters(entries: Entries) -> Entries:
    """The entries, those of autograd's threads as made by the one that calls before and after."""
    autograd = np.array([name.startswith(_AUTOGRAD) for name in entries.threads], dtype=np.bool_)
    if not autograd.any() or autograd.all():
        return entries
    thread = entries.thread.copy()
    theirs = (thread >= 0) & autograd[thread]
    others = (thread >= 0) & ~theirs
    before, after = theirs[1:] & others[:-1], theirs[:-1] & others[1:]
    beside = np.concatenate([thread[:-1][before], thread[1:][after]])
    if len(beside):
        thread[theirs] = np.bincount(beside).argmax()
    return replace(entries, thread=thread)
