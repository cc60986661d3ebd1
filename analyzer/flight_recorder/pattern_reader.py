"""Reads a dump by what a dump with the same bytes has taught.

The ranks of a job run the same program, so their dumps differ in the names and
members of groups, in numbers, and at the end.  What one dump's entries are, apart
from their numbers, is therefore kept, and the next dump is compared with it byte
for byte: as far as the bytes agree, its entries are of the same kinds, and only
the numbers are read.  The rest is decoded.  Whatever is not exactly as expected
is left to the ordinary way, so no dump can change what another one says.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hanglab.analyzer.flight_recorder.columns import Entries
from hanglab.analyzer.flight_recorder.decoding import Decoded
from hanglab.analyzer.flight_recorder.entry_kinds import Thinned
from hanglab.analyzer.flight_recorder.memo_queries import Marks
from hanglab.analyzer.flight_recorder.pattern_learning import Decode, learn_pattern
from hanglab.analyzer.flight_recorder.pattern_scan import Scan, find_entries
from hanglab.analyzer.flight_recorder.patterns import Pattern

#: Dumps that are kept, and so many of them are made for nothing before no more are.
_KEPT = 12
#: Entries that must agree, and the share of the bytes.
_LEAST = 64
_SHARE = 0.75
#: The longest dump that is kept.
_LONGEST = 8 << 20


class Likenesses:
    """The dumps that this process has read, as far as others may be like them."""

    def __init__(self, *, least: int = _LEAST) -> None:
        self._known: list[Pattern] = []
        self._least = least
        self._marks = Marks()
        self._idle = 0

    def recall(
        self, data: bytes, decode: Decode
    ) -> tuple[Decoded, Callable[[Entries], Entries]] | None:
        """Rest of ``data`` that must be read, and a function that makes all entries of it."""
        begin = find_entries(data) if self._known else None
        if begin is None:
            return None
        tail = np.frombuffer(data, dtype=np.uint8)[begin:]
        for known in self._known:
            equal = known.agreement(tail)
            count = int(np.searchsorted(known.ends, equal, side="right"))
            if count < max(self._least, 1) or known.ends[count - 1] < len(tail) * _SHARE:
                continue
            found = self._by(known, data, begin, count, decode)
            if found is not None:
                self._idle = 0
                self._known.remove(known)
                self._known.insert(0, known)
                return found
        return None

    def _by(
        self, known: Pattern, data: bytes, begin: int, count: int, decode: Decode
    ) -> tuple[Decoded, Callable[[Entries], Entries]] | None:
        rest = begin + int(known.ends[count - 1])
        scan = Scan(data)
        if data[rest : rest + 2] != b"}(" or not scan.reaches(2, begin):
            return None
        if scan.last_put >= known.first_put:
            return None
        puts = [put for put in known.puts if put[0] < rest - begin]
        scan.last_put = puts[-1][2]
        if data[-1:] != b"." or not scan.reaches(rest, len(data) - 1):
            return None
        kept = [data[begin + start : begin + end] for start, end, _ in puts]
        asked = [b"j" + place.to_bytes(4, "little") for place in known.asked]
        decoded = decode(
            b"".join([data[:begin], *self._marks.row(asked), *kept, memoryview(data)[rest:]])
        )
        values = self._marks.values(decoded, len(asked))
        if decoded is None or values is None or set(map(type, values)) - {str}:
            return None
        texts = dict(zip(known.asked, values, strict=True))
        if any(texts[place] != text for place, text in known.fixed.items()):
            return None
        rows = decoded.value["entries"]
        if len(rows) <= len(puts) + 1:
            return None
        del rows[: len(puts) + 1]
        groups = known.group_names(texts)
        if groups is None:
            return None

        def whole(entries: Entries) -> Entries:
            return known.join(data, begin, count, groups, entries)

        return decoded, whole

    def learn(self, data: bytes, thinned: Thinned, entries: Entries, decode: Decode) -> None:
        """Keep what has been read of ``data``, of which ``thinned`` and ``entries`` were made."""
        if self._idle >= _KEPT or len(data) > _LONGEST or find_entries(data) is None:
            return
        self._idle += 1
        pattern = learn_pattern(data, thinned, entries, self._marks, decode)
        if pattern is not None:
            self._known.insert(0, pattern)
            del self._known[_KEPT:]
