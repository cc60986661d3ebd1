"""Processes of a container, as the host counts them."""

from __future__ import annotations

from hanglab.harness.launchers.supervision.descendants import descendants_of
from hanglab.recorder.system.procfs import process_namespace, status


def process_inside(first: int, pid: int) -> int:
    """The host's number of a process whose number in its container is ``pid``.

    ``first`` is the container's first process.  Raises ProcessLookupError.
    """
    namespace = process_namespace(first)
    for candidate in [first, *descendants_of(first)]:
        numbers = _numbers(candidate)
        if numbers and numbers[-1] == pid and process_namespace(candidate) == namespace:
            return candidate
    raise ProcessLookupError(f"the container of process {first} has no process {pid}")


def _numbers(pid: int) -> list[int]:
    """A process's numbers, from the outermost namespace to its own."""
    return [int(number) for number in status(pid).get("NSpid", "").split()]
