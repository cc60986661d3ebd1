"""Binary layout of ``branches.bin``: the latest branches that a rank's main thread took.

Little-endian, everything a signed 64-bit integer save the bytes of the texts.  A header of
eight slots comes first, then a ring of records (wall time in nanoseconds, way), then texts: the
program's files in the order of their numbers, each as its length and that many bytes of UTF-8.

A way is one number: file (15 bits), line (24), column (16) and kind (8) of the statement or
expression that decides.  Only constants here: ranks import it.
"""

from __future__ import annotations

from typing import Final

MAGIC: Final = int.from_bytes(b"HANGLABB", "little")
VERSION: Final = 1


class BranchSlot:
    """Slots of the header."""

    MAGIC: Final = 0
    VERSION: Final = 1
    #: Branches taken so far.
    TOTAL: Final = 2
    #: Records that the ring has room for.
    CAPACITY: Final = 3
    #: Bytes of texts.
    TEXT_USED: Final = 4


HEADER_BYTES: Final = 8 * 8
RECORD_BYTES: Final = 16
#: A training step takes some dozens of branches in the user's own code.
CAPACITY: Final = 16_384
TEXT_BYTES: Final = 64 * 1024

IF_TAKEN: Final = 1
IF_PASSED: Final = 2
LOOP_AGAIN: Final = 3
LOOP_LEFT: Final = 4
#: Both values of a conditional expression.
VALUE_TAKEN: Final = 5
OTHER_VALUE: Final = 6
#: A later operand of ``and`` or ``or``, an element of a comprehension.
OPERAND: Final = 7
ELEMENT: Final = 8
#: The end of a ``with suppress()`` block.
BLOCK_ENDED: Final = 9
NO_CASE: Final = 10
#: Handlers of a ``try`` statement and cases of a ``match`` statement, by their index.
HANDLERS: Final = range(16, 128)
CASES: Final = range(128, 255)


def way(file: int, line: int, column: int, kind: int) -> int:
    """The number of a way; 0 for one that has no room in it."""
    if file >= 1 << 15 or line >= 1 << 24 or column >= 1 << 16:
        return 0
    return file << 48 | line << 24 | column << 8 | kind
