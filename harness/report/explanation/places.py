"""Places in the code: culprits', those of who waits beside them, the statement between."""

from __future__ import annotations

from collections.abc import Sequence

from hanglab.analyzer.code_owners import CodeMap, FrameLike
from hanglab.analyzer.plain_text import shown
from hanglab.analyzer.verdict import Status
from hanglab.harness.report.explanation.headlines import call_name
from hanglab.harness.report.explanation.parts import CallFrame, CodeLine, Place
from hanglab.harness.report.explanation.subject import Subject, ranks_name

#: Places of one role that are shown.
MOST_PLACES = 3
#: Frames of a chain of calls that are shown, the innermost.
MOST_CALLS = 8
#: Ranks whose places are looked at.
_MOST_LOOKED_AT = 4096
#: Characters of a line of source.
_LINE = 160
_CODE = CodeMap()


def places(subject: Subject) -> tuple[Place, ...]:
    """Places of the verdict: culprits first, then the decision, then who waits."""
    culprits = _of_ranks(subject, "culprit", subject.culprits)
    waiting = [rank for rank in subject.waiting if rank not in subject.culprits]
    return (*culprits, *_decision(subject), *_of_ranks(subject, "victim", waiting))


def _of_ranks(subject: Subject, role: str, ranks: Sequence[int]) -> list[Place]:
    """One place for all ranks that stand at the same line, the most ranks first."""
    together: dict[tuple[tuple[CallFrame, ...], str], list[int]] = {}
    for rank in ranks[:_MOST_LOOKED_AT]:
        calls = _calls(subject, rank)
        if calls:
            together.setdefault((calls, _doing(subject, rank)), []).append(rank)
    found = sorted(_at_one_line(together).items(), key=lambda one: (-len(one[1]), one[1]))[
        :MOST_PLACES
    ]
    known = sum(len(alike) for alike in together.values())
    alone = known < len(ranks[:_MOST_LOOKED_AT]) and subject.verdict.status is Status.SLOW
    return [
        Place(
            role=role,
            ranks=tuple(sorted(alike)),
            frame=_readable(calls[-1]),
            doing=doing or ("(of the others no line is known)" if alone else ""),
            source=_source(subject, calls[-1]),
            calls=tuple(_readable(frame) for frame in calls[-MOST_CALLS:]),
        )
        for (calls, doing), alike in found
    ]


def _calls(subject: Subject, rank: int) -> tuple[CallFrame, ...]:
    """Calls in user code down to the line that matters, outermost first."""
    verdict, view = subject.verdict, subject.view(rank)
    call = subject.call_of(rank)
    frames: Sequence[FrameLike] = _CODE.user_frames(call.stack) if call is not None else ()
    stack: Sequence[FrameLike] = view.user_frames if view is not None else ()
    place = verdict.location
    if place is not None and place.rank == rank:
        for candidate in (stack, frames):
            at = [index for index, f in enumerate(candidate) if _is_at(f, place.file, place.line)]
            if at:
                return _outermost_first(candidate[at[0] :])
        return (CallFrame(place.file, place.line, place.function),)
    if frames and stack:
        # The stack tells more of the way there than what the call kept of it.
        at = [i for i, f in enumerate(stack) if _is_at(f, frames[0].file, frames[0].line)]
        if at and len(stack) - at[0] > len(frames):
            return _outermost_first(stack[at[0] :])
    return _outermost_first(frames or stack)


def _is_at(frame: FrameLike, file: str, line: int) -> bool:
    return frame.line == line and (frame.file == file or frame.file.endswith(f"/{file}"))


def _outermost_first(frames: Sequence[FrameLike]) -> tuple[CallFrame, ...]:
    return tuple(CallFrame(f.file, f.line, f.function) for f in reversed(frames))


def _doing(subject: Subject, rank: int) -> str:
    call = subject.call_of(rank)
    return f"in {call_name(call)}" if call is not None else ""


_Alike = dict[tuple[tuple[CallFrame, ...], str], list[int]]


def _at_one_line(together: _Alike) -> _Alike:
    """Ranks of which nothing is open, with the one kind of those at the same line of which it is.

    Of a job that failed some gave up what others were still in.
    """
    found: _Alike = {}
    for (calls, doing), ranks in together.items():
        there = [words for frames, words in together if frames == calls]
        if len(there) == 2 and "" in there:
            (words,) = (one for one in there if one)
            who = ranks_name(together[calls, words])
            found.setdefault((calls, f"({who} {words})"), []).extend(ranks)
        else:
            found[calls, doing] = ranks
    return found


def _decision(subject: Subject) -> list[Place]:
    decision = subject.verdict.decision
    if decision is None:
        return []
    frame = CallFrame(decision.file, decision.line, decision.function)
    ranks = sorted({rank for way in decision.ways for rank in way.ranks})
    source = _source(subject, frame) or (CodeLine(decision.line, shown(decision.text), True),)
    return [
        Place(
            "decision", tuple(ranks), _readable(frame), "parted here", source, (_readable(frame),)
        )
    ]


def _source(subject: Subject, frame: CallFrame) -> tuple[CodeLine, ...]:
    """The line with its neighbours in the same function, where the Case holds them."""
    code = subject.sources.at(frame.file, frame.line)
    if code is None or code.source.absent or not code.source.lines:
        return ()
    first = code.source.first_line
    around = range(frame.line - 1, frame.line + 2)
    return tuple(
        CodeLine(number, _code_line(code.source.lines[number - first]), number == frame.line)
        for number in around
        if 0 <= number - first < len(code.source.lines)
    )


def _code_line(text: str) -> str:
    return shown(text.rstrip().expandtabs(4), _LINE)


def _readable(frame: CallFrame) -> CallFrame:
    return CallFrame(shown(frame.file), frame.line, shown(frame.function))
