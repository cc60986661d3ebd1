"""Reasons that a file cannot be used as a dump."""

from __future__ import annotations

from hanglab.analyzer.errors import InputError

REFUSED = "contains code: refused"
_ASK = "Do not load this file with pickle; ask where it comes from."


class DumpError(InputError, ValueError):
    """A file or a run of bytes that yields no dump; the message is the reason."""

    def __init__(self, reason: str, advice: str = "Collect this rank's dump again.") -> None:
        super().__init__(reason, advice)

    @property
    def reason(self) -> str:
        return str(self)


class RefusedDump(DumpError):
    """The bytes ask for something to be imported or called, which no dump does."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{REFUSED} ({what})", _ASK)

    @classmethod
    def again(cls, reason: str) -> RefusedDump:
        """Make a refusal again of its reason as it came out of a worker."""
        return cls(reason.removeprefix(f"{REFUSED} (").removesuffix(")"))
