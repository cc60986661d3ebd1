"""Space that a file system has left, when that is none, and what a write says then."""

from __future__ import annotations

import errno
import re
from typing import Final, NamedTuple

#: Error numbers of a write for which a file system, or its user's share of one, has no room.
NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
#: The same in texts: the C library's words for them, and Python's numbers.
NO_SPACE_TEXT: Final = r"No space left on device|Disk quota exceeded|\[Errno (?:28|122)\]"
_SAID = re.compile(NO_SPACE_TEXT, re.IGNORECASE)

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


def says_no_space(text: str) -> bool:
    """True if a text of any program tells that a write found no room."""
    return bool(_SAID.search(text))
