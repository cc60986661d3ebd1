"""Parts of an explanation: values of plain text, which terminal and page arrange.

Every text in them went through :func:`plain_text.shown`: no control characters, no line breaks
and no marks of direction are left in it.  HTML has still to be escaped by whoever writes HTML.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class ProcessPlace:
    """A rank's process: its host is "" and its number None where nothing tells."""

    rank: int
    host: str = ""
    pid: int | None = None
    #: True where it has ended, so that nothing can be asked of it any more.
    gone: bool = False


@dataclass(frozen=True)
class CodeLine:
    """A line of source; ``marked`` is the one that the place names."""

    number: int
    text: str
    marked: bool = False


@dataclass(frozen=True)
class CallFrame:
    """A frame of user code."""

    file: str
    line: int
    function: str


@dataclass(frozen=True)
class Place:
    """The line at which ranks are, or made the call that matters."""

    #: ``culprit``, ``victim``, or ``decision`` for the statement that parted them.
    role: str
    ranks: tuple[int, ...]
    frame: CallFrame
    #: What they do there, such as ``in all_reduce #15 of default_pg``; "" where nothing tells.
    doing: str = ""
    #: The line with one before and one after it; empty where the Case holds no source.
    source: tuple[CodeLine, ...] = ()
    #: Calls in user code that led there, outermost first, the place itself last.
    calls: tuple[CallFrame, ...] = ()


@dataclass(frozen=True)
class Reason:
    """One reason for the verdict.  ``ranks`` are all of which it was made."""

    text: str
    ranks: tuple[int, ...] = ()
    #: A kind of evidence, such as ``flight_recorder``.
    source: str = ""


@dataclass(frozen=True)
class Exclusion:
    """Causes that were considered, and the observation that excludes them."""

    causes: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class OpenAlternative:
    """Another cause that the evidence leaves possible."""

    cause: str
    ranks: tuple[int, ...]
    confidence: float
    #: What would tell it from the verdict's own.
    told_apart_by: str = ""


@dataclass(frozen=True)
class ShellLine:
    """A line for a shell, ready to be copied.  ``host`` is where it is to run; "" for here."""

    line: str
    purpose: str
    host: str = ""


@dataclass(frozen=True)
class Mend:
    """The change that ends the hang for good; ``frame`` is the line to change, where one is."""

    text: str
    frame: CallFrame | None = None


@dataclass(frozen=True)
class EvidenceLine:
    """A link of the chain: one observation as the analyzer made it."""

    source: str
    rank: int | None
    text: str


@dataclass(frozen=True)
class OtherJob:
    """Another job, or another attempt, that lay beside the one that is told of."""

    #: Names of its files, with ``#`` for the rank.
    files: str
    ranks: int
    status: str
    #: First sentence of its verdict.
    headline: str


@dataclass(frozen=True)
class Explanation:
    """A verdict as people read it, from what they need first to what proves it."""

    #: ``hung``, ``slow``, ``failed``, ``corrupt``, ``healthy`` or ``inconclusive``.
    status: str
    #: None where none is named.
    cause: str | None
    confidence: float
    #: Who did what, and who has waited for it since when: one sentence.
    headline: str
    culprits: tuple[int, ...] = ()
    #: Ranks that wait; ``ranks`` is how many the job has, 0 where nothing tells.
    waiting: tuple[int, ...] = ()
    ranks: int = 0
    #: Seconds for which those that wait have waited at least; None where nothing tells.
    waited_s: float | None = None
    processes: tuple[ProcessPlace, ...] = ()
    where: tuple[Place, ...] = ()
    why: tuple[Reason, ...] = ()
    #: Observations that ``why`` has no room for.
    more_reasons: int = 0
    excluded: tuple[Exclusion, ...] = ()
    alternatives: tuple[OpenAlternative, ...] = ()
    do_now: tuple[ShellLine, ...] = ()
    mend: Mend | None = None
    #: What evidence would decide an inconclusive case.
    would_decide: tuple[str, ...] = ()
    #: All observations, in the analyzer's own words and order.
    chain: tuple[EvidenceLine, ...] = ()
    #: First sentences of further findings.
    further: tuple[str, ...] = ()
    #: Other jobs, or attempts of it, whose dumps lay in the same folder, and their verdicts.
    beside: tuple[OtherJob, ...] = ()
    #: Files that were of no use, and why.
    unusable: tuple[tuple[str, str], ...] = ()
    #: The analyzer's own summary.
    summary: str = ""
    #: Values of variables at the statement that parted the ranks.
    values: tuple[str, ...] = field(default=())
