"""Asking torch for its Flight Recorder buffer, in the rank itself."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from contextlib import contextmanager
from threading import get_ident
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


def _dumper() -> Callable[[bool, bool, bool], bytes] | None:
    """torch's own function; None before torch.distributed has been imported."""
    distributed = sys.modules.get("torch._C._distributed_c10d")
    found: Callable[[bool, bool, bool], bytes] | None = getattr(distributed, "_dump_fr_trace", None)
    return found


def buffer(stacks: bool) -> bytes | None:
    """The whole buffer, torch's own pickle; None where torch.distributed is not loaded."""
    dump = _dumper()
    if dump is None:
        return None
    if not stacks:
        return dump(True, False, False)
    with _no_inductor():
        return dump(True, True, False)


def buffer_as_text() -> str | None:
    """The buffer without stacks, in base64."""
    import base64

    data = buffer(stacks=False)
    return base64.b64encode(data).decode() if data is not None else None


def counters() -> list[tuple[int, int, int]]:
    """(pg_id, last enqueued, last completed) of every group that has done anything."""
    dump = _dumper()
    if dump is None:
        return []
    status = pickle.loads(dump(False, False, False)).get("pg_status", {})
    return [
        (
            int(pg_id),
            int(row.get("last_enqueued_collective", -1)),
            int(row.get("last_completed_collective", -1)),
        )
        for pg_id, row in status.items()
        if str(pg_id).isdecimal()
    ]


@contextmanager
def _no_inductor() -> Iterator[None]:
    """Keep torch from importing its compiler to make sense of stacks.

    Where ``torch._inductor`` has not been imported, no frame can come from it;
    still torch asks for the attribute, which imports it in over a second.  The
    placeholder answers that one question with no, and hands any other, from any
    thread, to the real module.
    """
    torch = sys.modules["torch"]
    if "_inductor" in vars(torch) or "torch._inductor" in sys.modules:
        yield
        return
    placeholder = _NoInductor("torch._inductor")
    vars(torch)["_inductor"] = placeholder
    try:
        yield
    finally:
        if vars(torch).get("_inductor") is placeholder:
            del vars(torch)["_inductor"]


class _NoInductor(ModuleType):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._thread = get_ident()

    def __getattr__(self, name: str) -> Any:
        if name == "codecache" and get_ident() == self._thread:
            raise AttributeError(name)
        import importlib

        return getattr(importlib.import_module("torch._inductor"), name)
