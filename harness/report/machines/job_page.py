"""A verdict on the page that GitHub shows of a job."""

from __future__ import annotations

import os
import re
from pathlib import Path

from hanglab.analyzer.wording import name_ranks
from hanglab.harness.report.explanation.parts import Explanation, Place

#: Characters that are markup in GitHub's Markdown.
_MARKUP = re.compile(r"([\\`*_{}\[\]()#+\-.!|~>@:])")


def append_verdict(told: Explanation) -> None:
    """Adds a verdict to the file that GITHUB_STEP_SUMMARY names, if any.  Raises OSError."""
    page = os.environ.get("GITHUB_STEP_SUMMARY")
    if page:
        with Path(page).open("a", encoding="utf-8") as file:
            file.write(verdict_markdown(told) + "\n")


def verdict_markdown(told: Explanation) -> str:
    """A verdict in GitHub's Markdown; what a job has named is shown and means nothing there."""
    title = f"## hanglab: {told.status}" + (f", `{told.cause}`" if told.cause else "")
    lines = [title, "", f"**{_plain(told.headline)}**", ""]
    for place in told.where:
        lines += [_place(place), ""]
        if place.source:
            lines += ["```python", *(_code(line.text) for line in place.source), "```", ""]
    for number, reason in enumerate(told.why, 1):
        each = ", each" if len(reason.ranks) > 1 else ""
        who = f"{name_ranks(reason.ranks)}{each}: " if reason.ranks else ""
        lines.append(f"{number}. {_plain(who + reason.text)}")
    if told.mend is not None:
        lines += ["", f"Mend: {_plain(told.mend.text)}"]
    if told.do_now:
        commands = [_code(f"{one.line}  # {one.purpose}") for one in told.do_now]
        lines += ["", "```sh", *commands, "```"]
    return "\n".join(lines) + "\n"


def _place(place: Place) -> str:
    who = "the statement that parted them" if place.role == "decision" else name_ranks(place.ranks)
    frame = place.frame
    return _plain(
        f"{who} {place.doing}".rstrip() + f": {frame.file}:{frame.line} ({frame.function})"
    )


def _plain(text: str) -> str:
    """Text that is no markup."""
    escaped = text.replace("&", "&amp;").replace("<", "&lt;")
    return _MARKUP.sub(r"\\\1", escaped)


def _code(text: str) -> str:
    """A line that does not end the block that it stands in."""
    return text.replace("```", "`\u200b`\u200b`")
