"""Calls by which ranks ended, as far as their own records tell."""

from __future__ import annotations

from hanglab.analyzer.facts.case_facts import RankView
from hanglab.analyzer.verdict import Location
from hanglab.recorder.case.records import ProgramEnd

#: Advice for ranks that did.
ENDED_ITSELF = "It ended itself at that line: see what leads there, and whether its peers know."


def ending_call(view: RankView) -> ProgramEnd | None:
    """The call that ended the rank, or that takes it to its end; None where none is known to.

    What ``sys.exit`` raises may be caught on its way: a rank that entered an operation
    since, or that ended with another code, did not leave by it.  ``os._exit`` nobody can
    catch: other threads go on for the moment until the process is gone.
    """
    calls = [end_call for end_call in view.program_ends if end_call.how != "end"]
    if not calls or any(raised.main for raised in view.exceptions):
        return None
    last = calls[-1]
    if view.program_ends[-1] is last and last.how != "os._exit":
        # What it raised has not reached the top: it may have been caught.
        return None
    if view.ended is not None and view.ended.code != last.code:
        return None
    at = last.at.wall_ns + view.clock_ahead_ns
    operations = view.progress.operations if view.progress is not None else []
    if last.how != "os._exit" and any(one.entered_ns > at for one in operations):
        return None
    return last


def describe_program_end(view: RankView) -> tuple[str, Location | None]:
    """`` by sys.exit(0)`` and the user's line that called; ("", None) where it is not known."""
    end_call = ending_call(view)
    if end_call is None:
        return "", None
    location = view.location(end_call.frame) if end_call.frame is not None else None
    return f" by {end_call.how}({end_call.code})", location
