"""Names and amounts as Kubernetes takes them, and the labels that hanglab puts on its own."""

from __future__ import annotations

import re
from typing import Final

from hanglab.harness.errors import UsageError

#: On everything that belongs to a job of hanglab's; its value is the job's name.
JOB_LABEL: Final = "hanglab.job"
#: Container in which nothing runs but hanglab: the sidecar's, and the DaemonSet's.
AGENT: Final = "hanglab"
#: Where Cases lie in containers.
CASES: Final = "/hanglab"
CASE: Final = f"{CASES}/case"
#: Folder of an agent's watch; Cases of jobs that it saw stop lie in the other.
STATE: Final = f"{CASES}/state"
WATCHED: Final = f"{STATE}/cases"

_LABEL = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")
_QUANTITY = re.compile(r"\d+(\.\d+)?(m|k|[KMGTPE]i?)?")
#: Letters and digits of a name; a pod's host name, 63 at most, has more behind it.
_LONGEST = 40


def check_name(name: str) -> str:
    """Raises UsageError where no job, and none of its pods, can be called so."""
    if not _LABEL.fullmatch(name) or len(name) > _LONGEST:
        raise UsageError(
            f"{name!r} cannot name a job on Kubernetes.",
            f"Use small letters, digits and -, {_LONGEST} at most, with a letter first.",
        )
    return name


def check_quantity(text: str, option: str) -> str:
    """Raises UsageError for what is no amount, such as ``500m`` or ``16Gi``."""
    if not _QUANTITY.fullmatch(text):
        raise UsageError(
            f"{option} {text!r} is no amount that Kubernetes knows.",
            "Write 2 or 500m for processors, 16Gi or 512Mi for memory.",
        )
    return text
