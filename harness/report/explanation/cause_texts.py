"""The texts of all causes, gathered; a cause of another distribution has its row's advice."""

from __future__ import annotations

from hanglab.harness.report.explanation.causes.cause_text import CauseText
from hanglab.harness.report.explanation.causes.machine import HARDWARE, NETWORK, RESOURCE
from hanglab.harness.report.explanation.causes.software import TEXTS as SOFTWARE
from hanglab.harness.report.explanation.causes.speed import DATA_STARVATION, STRAGGLER
from hanglab.harness.report.explanation.causes.synchronization import TEXTS as SYNCHRONIZATION

TEXTS: dict[str, CauseText] = {
    **SYNCHRONIZATION,
    **DATA_STARVATION,
    **RESOURCE,
    **NETWORK,
    **SOFTWARE,
    **STRAGGLER,
    **HARDWARE,
}
_UNKNOWN = CauseText(says=(), what="", proof="")


def text_of(cause: str | None) -> CauseText:
    """Text of a cause; without words for one that is not hanglab's own."""
    return TEXTS.get(cause or "", _UNKNOWN)
