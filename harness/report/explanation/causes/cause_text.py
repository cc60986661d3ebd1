"""The shape of what people are told of a cause."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class CauseText:
    """One cause in words.

    ``says`` begins the first sentence of a verdict: of several templates the first counts whose
    fields are all known.  Fields are those of :class:`headlines.Words`: ``{Who}`` and ``{who}``
    name the culprits, ``{s}`` ends a verb of theirs, ``{is_}``, ``{has}``, ``{does}``, ``{its}``
    and ``{it}`` agree with them; ``{at}`` is the culprit's line, ``{told}`` what was seen of it.
    """

    says: tuple[str, ...]
    what: str
    #: How hanglab proves it.
    proof: str
    #: Causes that it is often taken for, or that are taken for it, and what tells them apart.
    mistaken_for: Mapping[str, str] = field(default_factory=dict)
    #: The change that ends it; the first whose fields are known, ``{place}`` is the line to change.
    mend: tuple[str, ...] = ()
    #: Names of commands of :mod:`commands`, the most telling first.
    commands: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    #: As ``says``, where nobody but the culprits is concerned.
    says_of_all: tuple[str, ...] = ()
    #: True where its effect is one wait and not one in every step.
    once: bool = False
