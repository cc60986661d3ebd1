"""Cases in which all that a job has named is meant to do harm.

The recorder's own redaction replaces every text of a Case by its kind, wherever it stands, and
the same by the same; here the words that it puts there are hostile.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import unpacked

from hanglab.recorder.archive import redaction
from hanglab.recorder.archive.progress_redaction import redact_progress
from hanglab.recorder.archive.pseudonyms import Pseudonyms
from hanglab.recorder.archive.text_redaction import TextRedaction
from hanglab.recorder.case.reader import CaseReader

#: A part of each that must be seen somewhere, and what no terminal and no page may be given.
HARMFUL = (
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(2)>",
    "{{ 7 * 7 }}{% raw %}",
    "\u202egnp\u202c",
    "\x1b[31mred\x07\x1b]0;title\x07",
    "[bold red]x[/]",
    "a" * 3_000,
    "caf\udce9",
    "<!--",
    "line\r\nline\u2028line",
)
FORBIDDEN = "\u202e\u202c\x1b\x07\x00\udce9\u2028"
_KINDS = ("file", "function", "host", "group", "section", "thread", "value", "package")


class HostileNames(Pseudonyms):
    """Gives a hostile word for each name, another one for each."""

    #: Texts of a progress file have no surrogates.
    mapped = False

    def _next(self, kind: str, original: str) -> str:
        word = super()._next(kind, original)
        if kind not in _KINDS:
            return word
        number = int(word.removeprefix(kind))
        harmful = HARMFUL[(number + _KINDS.index(kind)) % len(HARMFUL)].replace(".", "") + word
        return harmful.encode("utf-8", "replace").decode() if self.mapped else harmful


class HostileTexts(TextRedaction):
    """Messages and lines of logs with something hostile before and behind what is known."""

    def phrase(self, text: str) -> str:
        return "\n".join((*HARMFUL, super().phrase(text), *HARMFUL))

    def exception_type(self, name: str) -> str:
        return f"{super().exception_type(name)}{HARMFUL[0]}"

    def lines(self, text: str) -> str:
        lines = "\n".join((*HARMFUL, super().lines(text), *HARMFUL))
        return lines.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _hostile_progress(data: bytes, names: HostileNames) -> bytes:
    names.mapped = True
    try:
        return redact_progress(data, names)
    finally:
        names.mapped = False


def hostile_case(entry: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The Case of a corpus entry with hostile names and texts."""
    monkeypatch.setattr(redaction, "Pseudonyms", HostileNames)
    monkeypatch.setattr(redaction, "TextRedaction", HostileTexts)
    monkeypatch.setattr(redaction, "redact_progress", _hostile_progress)
    target = folder / "hostile"
    target.mkdir()
    redaction.redact(CaseReader(unpacked(entry, folder)), target)
    monkeypatch.undo()
    return target
