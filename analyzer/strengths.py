"""Strengths of findings: they sort proposals, and none of them is a probability.

What people read is fitted to judged cases, by cause and kinds of evidence (``calibration``).  A
level says what kind of observation a finding rests on, so that two detectors that see as much of a
thing say it as strongly.
"""

from __future__ import annotations

from typing import Final

#: The kernel says it of the process itself: stopped by a signal, frozen.
KERNEL_SAYS: Final = 0.99
#: Above what the text of an error alone proves, below what the kernel itself says.
CONFIRMED: Final = 0.98
#: The error names its reason, or all that peers did agrees against one rank.
PROVED: Final = 0.97
#: Two kinds of evidence show it, such as a stack and the counts of what was done.
SHOWN: Final = 0.95
#: One kind of evidence shows it.
SEEN: Final = 0.9
#: It follows from what is seen, by way of what such jobs do.
INFERRED: Final = 0.85
#: It follows from what is open everywhere: two that fail at once may look the same.
CONCLUDED: Final = 0.8
#: It fits all that is seen, and a part of the evidence that would show it is missing.
PLAUSIBLE: Final = 0.7
#: Up to this a finding names all who could be meant, not one who is proved.
CANDIDATES: Final = 0.6
#: Nothing tells which of them it is.
TIED: Final = 0.5

#: Of a slowness that costs next to nothing; the share of the time that it costs is added.
SLOW: Final = 0.65
#: The same of one whose time is measured by itself, as collections of garbage are.
MEASURED_SLOW: Final = 0.75
#: Of batches that do not correlate with the time that they take; half the correlation is added.
UNCORRELATED: Final = 0.4

#: Of alternatives: one that a single further piece of evidence would make the finding; one that
#: speaks against little; one that is told because it looks the same.
LIKELY_ALTERNATIVE: Final = 0.3
ALTERNATIVE: Final = 0.2
REMOTE_ALTERNATIVE: Final = 0.1
