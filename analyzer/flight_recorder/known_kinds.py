"""Kinds of entries that were met before: the dumps of other ranks have the same ones."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from hanglab.analyzer.flight_recorder.columns import Int64
from hanglab.analyzer.flight_recorder.pickle_walk import EntryKind, Keys, kind_of

UInt8 = npt.NDArray[np.uint8]

#: More are forgotten: a few hundred are of one job.
_MOST_KINDS = 4096
#: Bytes of an entry that is kept: 512 frames of 128 bytes.  Those of strangers may be as long
#: as their files.
LONGEST_KEPT = 1 << 16


@dataclass(frozen=True)
class EntryLayout:
    """Places at which entries of one length may differ, and the opcodes before these."""

    mask: tuple[int, ...]
    #: For each byte 0 where entries may differ, else 255.
    kept: UInt8
    places: Int64
    opcodes: UInt8

    @classmethod
    def of(cls, kind: EntryKind, size: int) -> EntryLayout:
        opcodes = [(n.at, n.opcode) for n in kind.numbers]
        opcodes += [(at - 1, ord("q" if long == 1 else "r")) for at, long in kind.puts.tolist()]
        places, codes = zip(*opcodes, strict=True) if opcodes else ((), ())
        kept = np.full(size, 0xFF, dtype=np.uint8)
        kept[list(kind.mask)] = 0
        return cls(
            kind.mask,
            kept,
            np.array(places, dtype=np.int64),
            np.array(codes, dtype=np.uint8),
        )


class KnownKinds:
    """Kinds of entries whose keys stand at some places of the memo; other ranks have them, too."""

    def __init__(self, keys: Keys) -> None:
        self._columns = dict(keys)
        self._kinds: dict[bytes, EntryKind | None] = {}
        self._layouts: defaultdict[int, list[EntryLayout]] = defaultdict(list)

    def layouts(self, size: int) -> list[EntryLayout]:
        """Layouts that entries of a length were seen to have, to which others may be added."""
        return self._layouts[size] if size <= LONGEST_KEPT else []

    def kind(self, piece: bytes) -> EntryKind | None:
        if len(piece) > LONGEST_KEPT:
            return kind_of(piece, self._columns)
        if piece not in self._kinds:
            if len(self._kinds) >= _MOST_KINDS:
                self._kinds.clear()
                self._layouts.clear()
            self._kinds[piece] = kind_of(piece, self._columns)
        return self._kinds[piece]

    def of_one(self, piece: bytes) -> EntryKind | None:
        """The kind of one entry, walked over only where none is known that it is like."""
        entry = np.frombuffer(piece, dtype=np.uint8)
        layouts = self.layouts(len(piece))
        for layout in layouts:
            if (entry[layout.places] == layout.opcodes).all():
                kind = self.kind((entry & layout.kept).tobytes())
                if kind is not None and kind.mask == layout.mask:
                    return kind
        kind = self.kind(piece)
        if kind is not None:
            layouts.append(EntryLayout.of(kind, len(piece)))
        return kind


known_kinds = lru_cache(maxsize=8)(KnownKinds)
