"""Space that a file system has left, and when that is none."""

from __future__ import annotations

from typing import Final, NamedTuple

#: Bytes below which a file system is full.
_FULL_BYTES: Final = 1 << 18
#: Share of its size below which one is full: the bytes above are much of a small one.
_FULL_SHARE: Final = 0.001
#: Bytes, one block, below which one of any size is full.
_FULL_LEAST_BYTES: Final = 4096


class Space(NamedTuple):
    """Sizes of a file system in bytes and in files; None where it does not tell them."""

    size_bytes: int | None
    #: What a process without privileges may still use.
    free_bytes: int | None
    inodes: int | None
    free_inodes: int | None

    @property
    def is_full(self) -> bool:
        """True if nothing more goes in.  One that is 99 % full still has room."""
        if self.free_inodes == 0:
            return True
        if self.free_bytes is None or not self.size_bytes:
            return False
        share = _FULL_SHARE * self.size_bytes
        return self.free_bytes <= min(_FULL_BYTES, max(share, _FULL_LEAST_BYTES))
