"""Sections and steps in C, for interpreters that the installation could build them for.

What they write is told by ``sections.py`` and ``progress_file.py``, which do the same where
there is no such module.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hanglab.recorder.rank.native.writer import Writer


def _writer() -> type[Writer] | None:
    if os.environ.get("HANGLAB_PURE_PYTHON", "") not in ("", "0"):
        return None
    try:
        from hanglab.recorder.rank.native.writer import Writer
    except Exception:  # whatever is wrong with it: the job is recorded all the same
        return None
    return Writer


#: None where there is none for this interpreter, or the environment wants none.
WRITER = _writer()
