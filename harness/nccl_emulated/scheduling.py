"""Order of what a device does: the heads of its queues, and the room for kernels on it.

An operation starts when it is the first of its queue, what it waits for is done and, if it
communicates, one of the slots is free; it keeps the slot until it is done.  Slots are given in the
order of the launches, whatever the queue.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence

from hanglab.harness.nccl_emulated.communicator import Communicator
from hanglab.harness.nccl_emulated.conditions import Conditions
from hanglab.harness.nccl_emulated.operation import DeviceOperation
from hanglab.harness.nccl_emulated.rounds import Joint
from hanglab.harness.nccl_emulated.segment import ROUNDS
from hanglab.harness.nccl_emulated.snapshots import snapshot

#: What an operation is said to take that was done in one go with the one before.
_SHORTEST_NS = 10_000
#: More than any number of a launch.
_NO_LIMIT = 1 << 62


class Scheduler:
    """The queues of a device: one of computations, and one for each communicator."""

    def __init__(
        self,
        slots: int,
        conditions: Conditions,
        complete: Callable[[Sequence[DeviceOperation]], None],
    ) -> None:
        self.computations: deque[DeviceOperation] = deque()
        self.communicators: list[Communicator] = []
        self._free_slots = slots
        self._conditions = conditions
        self._complete = complete

    def turn(self) -> bool:
        """One look at the head of each queue; True if anything moved."""
        waiting = [one for one in self.communicators if one.queue]
        halted = self._conditions.halted(bool(waiting or self.computations))
        if self._conditions.aborts(bool(self.communicators)):
            for one in self.communicators:
                one.abort()
        moved = not halted and self._advance(self.computations)
        if len(waiting) > 1:
            waiting.sort(key=lambda one: one.queue[0].number)
        for one in waiting:
            moved = self._advance_communicator(one, waiting, halted) or moved
        return moved

    def _advance_communicator(
        self, communicator: Communicator, waiting: Sequence[Communicator], halted: bool
    ) -> bool:
        queue, moved = communicator.queue, False
        while queue:
            limit = _NO_LIMIT if len(waiting) == 1 else _limit(communicator, waiting)
            if moved and queue[0].number > limit:
                return True  # the other one's turn
            if isinstance(queue[0].kernel, Joint):
                # What a device has handed to its peers it carries out, whatever befalls it then.
                if halted and not communicator.rounds.open:
                    return moved
                if not self._advance_run(communicator, limit):
                    return moved
            elif halted or not self._advance_one(queue):
                return moved
            moved = True
        return moved

    # Kernels by themselves.

    def _advance(self, queue: deque[DeviceOperation]) -> bool:
        moved = False
        while queue and self._advance_one(queue):
            moved = True
        return moved

    def _advance_one(self, queue: deque[DeviceOperation]) -> bool:
        """Take the head of a queue as far as it gets; True if it is done."""
        operation = queue[0]
        if operation.running is None:
            if not self._start(operation):
                return False
            operation.running = operation.kernel()
        if operation.error is None and not _is_aborted(operation):
            if self._conditions.holds(operation):
                return False
            try:
                next(operation.running)
                return False
            except StopIteration:
                pass
            except Exception as error:
                # What CUDA does: the kernel is over, and whoever waits for it is told.
                operation.error = error
        if not self._conditions.may_end(operation):
            return False
        operation.completed_ns = time.time_ns()
        queue.popleft()
        self._end([operation])
        return True

    def _start(self, operation: DeviceOperation, posted: bool = False) -> bool:
        """True if the operation could start; it may meet an error at once."""
        if not posted and not (operation.ready and self._conditions.may_start(operation)):
            return False
        if operation.communicator is not None:
            if not self._free_slots:
                return False
            self._free_slots -= 1
        if not posted:
            operation.error = self._conditions.failure(operation)
        operation.started_ns = time.time_ns()
        return True

    def _end(self, operations: Sequence[DeviceOperation]) -> None:
        if operations[0].communicator is not None:
            self._free_slots += 1
        self._complete(operations)

    # Runs of kernels that all members publish.

    def _advance_run(self, communicator: Communicator, limit: int) -> bool:
        """Publish what can be published, finish what everybody has published; True if any ended.

        The head waits for its peers; whoever is woken then finds the parts of several operations:
        that is what a small operation costs.  Operations after ``limit`` do not belong to the run.
        """
        queue, rounds = communicator.queue, communicator.rounds
        head, posted = queue[0], rounds.open
        if not head.started_ns and not self._start(head, posted > 0):
            return False
        if head.error is None and not communicator.aborted:
            # What has been published already is through whatever there is between the ranks.
            if not posted and self._conditions.holds(head):
                return False
            done = [head]
            try:
                if posted < ROUNDS:
                    rounds.post(self._publishable(communicator, posted, limit))
                count = self._endable(rounds.common, head, rounds.open)
                if not count:
                    return False
                done = snapshot(queue, 0, count)
                run = [one.kernel for one in done if isinstance(one.kernel, Joint)]
                del done[rounds.settle(run) :]
            except Exception as error:
                # What CUDA does: the kernel is over, and whoever waits for it is told.
                head.error = error
                del done[1:]
        elif self._conditions.may_end(head):
            done = [head]
        else:
            return False
        # One after the other: the first has waited for peers, the others have taken no time.
        now = time.time_ns()
        step = min((now - head.started_ns) // len(done), _SHORTEST_NS)
        begun = head.started_ns
        for place, one in enumerate(done, 1):
            one.started_ns = begun
            one.completed_ns = begun = now - (len(done) - place) * step
            queue.popleft()
        self._end(done)
        return True

    def _endable(self, common: int, head: DeviceOperation, posted: int) -> int:
        """Count of the rounds, published by all members, that the device may end."""
        if self._conditions.sound or not common:
            return common
        # What was published before the device became unsound ends as if it were sound.
        if posted > 1:
            return min(common, posted - 1)
        return int(self._conditions.may_end(head))

    def _publishable(self, communicator: Communicator, posted: int, limit: int) -> list[Joint]:
        """Kernels that are next to be published: the head, and as many as can go along with it."""
        found: list[Joint] = []
        most = ROUNDS if self._conditions.sound else 1
        for place, one in enumerate(snapshot(communicator.queue, posted, most), posted):
            if not isinstance(one.kernel, Joint):
                break
            if place and (one.number > limit or not _can_be_published(one, communicator)):
                break
            found.append(one.kernel)
        return found


def _can_be_published(operation: DeviceOperation, communicator: Communicator) -> bool:
    """True if all that it waits for is done, or before it in the same queue."""
    for one in operation.before:
        if not one.completed_ns:
            return False
    for one in operation.after:
        if not one.completed_ns and one.communicator is not communicator:
            return False
    return True


def _limit(communicator: Communicator, waiting: Sequence[Communicator]) -> int:
    """The first launch for another communicator that has not started, and may want the slot."""
    first = _NO_LIMIT
    for one in waiting:
        if one is not communicator:
            for operation in snapshot(one.queue, 0, 2):
                if not operation.started_ns:
                    first = min(first, operation.number)
                    break
    return first


def _is_aborted(operation: DeviceOperation) -> bool:
    """True if the kernel ends without being through, and looks done (pytorch#119249)."""
    return operation.communicator is not None and operation.communicator.aborted
