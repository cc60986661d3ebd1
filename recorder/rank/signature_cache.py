"""Finding the signature of a call that was made before, in a few look-ups."""

from __future__ import annotations

import weakref
from collections.abc import Hashable
from types import FrameType
from typing import Any

from hanglab.recorder.rank.call_site import CallSites
from hanglab.recorder.rank.signatures import Signatures

#: What else has to agree (dtype, whether the tensor is on the CPU, the rest), and the
#: signature's number; by the group's id and by the tensor's shape.
_ByGroup = dict[int, dict[Any, tuple[Any, bool, Hashable, int]]]


class SignatureCache:
    """Signatures of the calls of one method, by what is cheap to read of a call."""

    def __init__(self, sites: CallSites, signatures: Signatures) -> None:
        self._sites = sites
        self._signatures = signatures
        #: By the id of the code and by the instruction; None for code that is not the user's.
        self.by_code: dict[int, dict[int, _ByGroup] | None] = {}
        #: For calls that no code of the user's has made.
        self.nowhere: _ByGroup = {}
        self._all = [self.nowhere]
        self._groups: dict[int, weakref.ref[Any]] = {}

    def add(
        self,
        frame: FrameType,
        group: Any,
        size: Any,
        wanted: tuple[Any, bool, Hashable],
        number: int,
    ) -> None:
        """A call by this frame has the signature with this number."""
        by_group = self._at(frame)
        if by_group is not None:
            self._watch(group)
            table = by_group.setdefault(id(group), {})
            self._signatures.shorten(number, table, size, (*wanted, number))

    def _at(self, frame: FrameType | None) -> _ByGroup | None:
        """None where the code may go, and its id be given to another."""
        while frame is not None:
            code = id(frame.f_code)
            if code not in self._sites.known:
                return None
            if self._sites.known[code] is not None:
                sites = self.by_code.setdefault(code, {})
                assert sites is not None
                by_group = sites.get(frame.f_lasti)
                if by_group is None:
                    by_group = sites[frame.f_lasti] = {}
                    self._all.append(by_group)
                return by_group
            self.by_code[code] = None
            frame = frame.f_back
        return self.nowhere

    def _watch(self, group: Any) -> None:
        """Forget it as it goes, before its id can be given to another."""
        key = id(group)
        if key not in self._groups:
            self._groups[key] = weakref.ref(group, lambda _: self._forget(key))

    def _forget(self, key: int) -> None:
        self._groups.pop(key, None)
        for by_group in self._all:
            by_group.pop(key, None)
