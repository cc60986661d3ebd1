"""The watchdog: discovers what the device has done, and ends the process when it takes too long.

One thread for all groups, where torch 2.13 has one each; a turn every 100 ms
(``kWatchdogThreadSleepMillis``).  Its texts are those of ProcessGroupNCCL.cpp, its steps those of
``Watchdog::runLoop`` and ``HeartbeatMonitor::runLoop``: the signal ``exception_dump`` on the
global store, a dump on every rank that sees it, and SIGABRT.  nccl2 of torch 2.15 dumps on the rank
alone that sees the failure (``FlightRecorderHook::onAbort``).
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from hanglab.harness.nccl_emulated.dumps import DumpPipe, write_dump
from hanglab.harness.nccl_emulated.ring import process_ring
from hanglab.harness.nccl_emulated.snapshots import snapshot

if TYPE_CHECKING:
    from hanglab.harness.nccl_emulated.launches import Launches
    from hanglab.harness.nccl_emulated.work import EmulatedWork

THREAD_NAME = "hanglab-watchdog"
_TURN_S = 0.1
#: Turns between two looks for the peers' signal, which asks the store (torch: every second).
_SIGNAL_TURNS = 10
_SIGNAL = "exception_dump"
#: How long peers get to write their dumps before this process goes (torch: 60 s at most).
_PEERS_S = 2.0


#: For the thread to end with the process, in seconds.
_STOP_S = 10.0


class Watchdog:
    """Watchdog of one process; ``rank`` is the global one."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self._groups: list[Launches] = []
        self._works: deque[EmulatedWork] = deque()
        self._pipe = DumpPipe(rank)
        self._dumped = False
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._serve, name=THREAD_NAME, daemon=True)
        self._thread.start()
        atexit.register(self._stop)

    def _stop(self) -> None:
        """Ends the thread before the interpreter does: in a call to the store it would abort."""
        if os.getpid() == self._process:
            self._stopping.set()
            self._thread.join(_STOP_S)

    def add_group(self, group: Launches) -> None:
        self._groups.append(group)

    def watch(self, work: EmulatedWork) -> None:
        self._works.append(work)

    def forget(self, group: Launches) -> None:
        """The group has been shut down."""
        with self._lock:
            # In place: hosts go on adding to it meanwhile.
            for work in [one for one in snapshot(self._works) if one.group is group]:
                self._works.remove(work)
            if group in self._groups:
                self._groups.remove(group)

    def _serve(self) -> None:
        turn = -1
        while not self._stopping.wait(_TURN_S):
            turn += 1
            with contextlib.suppress(OSError):
                if self._pipe.asked():
                    write_dump(self.rank, stacks=True, only_active=False)
            late = self.look()
            if late is not None:
                self._end(late)
            elif turn % _SIGNAL_TURNS == 0 and self._signalled():
                self._dump("a collective timeout or exception from another rank")

    def look(self) -> EmulatedWork | None:
        """One turn over all open works; gives the first that has failed or takes too long."""
        failed = None
        with self._lock:
            for work in snapshot(self._works):
                timing, state = process_ring().timing, work.entry.group
                work.entry.look(timing)
                # Without timing torch has no event that tells of a start.
                if timing and not work.entry.hooked and work.operation.started_ns:
                    state.started = max(state.started, work.sequence)
                if work.operation.error is not None:
                    failed = failed or work
                elif work.operation.completed_ns:
                    state.completed = work.entry.numbers[2] if work.entry.hooked else work.sequence
                    self._retire(work)
                    self._works.remove(work)
                elif work.elapsed_ms() > work.timeout_ms:
                    failed = failed or work
        return failed

    def _retire(self, work: EmulatedWork) -> None:
        entry, operation = work.entry, work.operation
        if process_ring().timing:
            entry.duration_ms = (operation.completed_ns - operation.started_ns) / 1e6
        entry.retired = True

    def _signalled(self) -> bool:
        if self._dumped or not self._groups or process_ring().hooked:
            return False
        try:
            return bool(self._groups[0].root_store.check([_SIGNAL]))
        except RuntimeError:  # the store has gone with the rank that kept it
            return False

    def _end(self, work: EmulatedWork) -> None:
        """Ends the process as torch does when a work has failed or timed out."""
        state = work.entry.group
        where = f"[PG ID {state.pg_id} PG GUID {state.name}({state.description}) Rank {work.rank}]"
        error = work.operation.error
        said = (
            f"[Rank {work.rank}] Watchdog caught collective operation timeout: {work} ran for "
            f"{work.elapsed_ms():.0f} milliseconds before timing out."
            if error is None
            else str(error)
        )
        if error is None:
            self._log(said, 683)
        self._log(
            f"{where}  failure detected by watchdog at work sequence id: {work.sequence} PG "
            f"status: last enqueued work: {state.enqueued}, last completed work: {state.completed}",
            2271,
        )
        if not process_ring().hooked:
            with contextlib.suppress(RuntimeError):
                self._groups[0].root_store.set(_SIGNAL, str(self.rank))
        if os.environ.get("TORCH_FR_DUMP_ON_TIMEOUT", "1") != "0":
            self._dump("a collective timeout from this local rank")
        self._log(
            f"[Rank {work.rank}] Some NCCL operations have failed or timed out. Due to the "
            "asynchronous nature of CUDA kernels, subsequent GPU operations might run on "
            "corrupted/incomplete data.",
            697,
        )
        if os.environ.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "3") == "0":
            with self._lock:
                self._works.remove(work)
            return
        self._log(
            f"[Rank {work.rank}] To avoid data inconsistency, we are taking the entire process "
            "down.",
            703,
        )
        time.sleep(_PEERS_S)
        last = f"{where} Process group watchdog thread terminated with exception: {said}"
        self._log(last, 2036)
        sys.stderr.write(
            "terminate called after throwing an instance of 'c10::DistBackendError'\n"
            f"  what():  {last}\n"
        )
        sys.stderr.flush()
        os.abort()

    def _dump(self, reason: str) -> None:
        if self._dumped:
            return
        self._dumped = True
        state = process_ring().groups[0]
        self._log(
            f"[PG ID {state.pg_id} PG GUID {state.name}({state.description}) Rank {self.rank}] "
            f"Received a dump signal due to {reason} and we will try our best to dump the debug "
            f"info. Last enqueued NCCL work: {state.enqueued}, last completed NCCL work: "
            f"{state.completed}.",
            1746,
        )
        with contextlib.suppress(OSError):
            write_dump(self.rank, stacks=True, only_active=False)

    def _log(self, text: str, line: int) -> None:
        now = time.time()
        moment = time.strftime("%m%d %H:%M:%S", time.localtime(now))
        sys.stderr.write(
            f"[rank{self.rank}]:[E{moment}.{int(now % 1 * 1e9):09d} ProcessGroupNCCL.cpp:{line}] "
            f"{text}\n"
        )


_WATCHDOG: Watchdog | None = None


def process_watchdog(rank: int) -> Watchdog:
    """This process's; begun at the first call."""
    global _WATCHDOG
    if _WATCHDOG is None:
        _WATCHDOG = Watchdog(rank)
    return _WATCHDOG


def _forget_in_child() -> None:
    global _WATCHDOG
    _WATCHDOG = None


os.register_at_fork(after_in_child=_forget_in_child)
