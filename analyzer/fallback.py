"""The verdict where no heuristic has anything to say: healthy, or honestly undecided."""

from __future__ import annotations

from hanglab.analyzer.advice import advice_for
from hanglab.analyzer.causes.software.absent_ranks import candidates
from hanglab.analyzer.causes.synchronization.divergence import (
    question,
    undecided_divergence,
    what_decides,
)
from hanglab.analyzer.causes.synchronization.findings import open_question
from hanglab.analyzer.facts.evidence import Evidence as Known
from hanglab.analyzer.facts.idle_time import Rest, long_rest
from hanglab.analyzer.facts.stack_position import Place
from hanglab.analyzer.proposal import name_line, name_ranks
from hanglab.analyzer.verdict import Cause, Evidence, Status, Verdict

_HANGS = "The job hangs, but the evidence does not show why."


def healthy(known: Known) -> Verdict | None:
    """A verdict if the job ended well, still moves, or shows nothing unfinished; else None."""
    if known.case:
        if known.all_succeeded:
            why = "Every rank came to its end with exit code 0."
        elif known.stuck or any(v.failed for v in known.ranks.values()) or not known.ranks:
            return None
        elif _moving(known):
            why = "The job moves and nothing holds it up."
        else:
            return None
    else:
        picture = known.picture
        if picture.waits or picture.missing or picture.divergences:
            return None
        if picture.moving or picture.incomplete or picture.endless or picture.blank:
            return None
        why = "All operations that the dumps know of are finished and matched."
    return Verdict(
        status=Status.HEALTHY,
        confidence=0.95,
        summary=why,
        inputs=known.inputs,
        advice="Nothing to do.",
    )


def _moving(known: Known) -> bool:
    limit = (known.job.hang_after_s if known.job else None) or 5.0
    movements = [v.movement for v in known.ranks.values() if v.ended is None]
    if not any(m is not None and m.quiet_s < limit for m in movements):
        return False
    return long_rest(known) is None


def _joining(known: Known) -> list[int]:
    """All ranks of a job that hangs before its first group is there; [] of any other."""
    if not known.stuck or known.picture.waits or known.inputs.missing_ranks:
        return []
    for view in known.ranks.values():
        if view.ended is not None or view.standing.place is not Place.RENDEZVOUS:
            return []
    return sorted(known.ranks)


def _still_joining(known: Known, ranks: list[int]) -> Verdict:
    lines = {rank: name_line(known.ranks[rank].location()) for rank in ranks[:64]}
    known.inputs.would_decide = ["native stacks", "socket states of both ends"]
    everybody = "All ranks are" if len(ranks) > 1 else "The only rank is"
    return Verdict(
        status=Status.INCONCLUSIVE,
        victims=ranks,
        summary=(
            f"{everybody} still in init_process_group: the job never formed, and the evidence "
            "does not show why."
        ),
        evidence=[
            Evidence("stack", rank, f"is in init_process_group{line}")
            for rank, line in lines.items()
        ],
        advice=advice_for(Cause.RENDEZVOUS),
        inputs=known.inputs,
    )


def _nothing_recorded(known: Known) -> Verdict:
    """Dumps of a recorder that was off, or of which nothing was asked."""
    ranks = known.picture.ranks
    known.inputs.would_decide = [f"rank {rank}'s dump with its operations" for rank in ranks[:64]]
    return Verdict(
        status=Status.INCONCLUSIVE,
        summary=(
            f"Nothing was recorded: {'the dump' if len(ranks) == 1 else 'the dumps'} of "
            f"{name_ranks(ranks)} {'knows' if len(ranks) == 1 else 'know'} of no operation."
        ),
        advice=(
            "Switch Flight Recorder on before the job starts (TORCH_FR_BUFFER_SIZE=2000, in older "
            "torch TORCH_NCCL_TRACE_BUFFER_SIZE=2000), and dump with collectives while it hangs."
        ),
        inputs=known.inputs,
    )


def _nobody(known: Known) -> Verdict:
    """A Case of a command that started no rank."""
    return Verdict(
        status=Status.INCONCLUSIVE,
        summary="No rank was found: no process of the command was given a RANK or joined a "
        "process group.",
        advice="Read what the command printed and ended with. Where it has the ranks started "
        "elsewhere, record the command that starts them, or call recorder.start() in each.",
        inputs=known.inputs,
    )


def undecided(known: Known) -> Verdict:
    """``inconclusive``, with what is known and what would settle it."""
    picture = known.picture
    if known.case and not known.ranks and not known.inputs.missing_ranks:
        return _nobody(known)
    joining = _joining(known)
    if joining:
        return _still_joining(known, joining)
    if not known.case and picture.blank == picture.ranks:
        return _nothing_recorded(known)
    needs = _needs(known)
    evidence = [
        Evidence(
            "flight_recorder",
            wait.call.rank,
            f"waits in {wait.call.op}"
            + (f" number {wait.call.seq}" if wait.call.seq is not None else "")
            + (f" for {name_ranks(wait.on)}" if wait.on else ""),
        )
        for wait in picture.waits[:64]
    ]
    divergence = undecided_divergence(picture)
    asked = question(picture, divergence) if divergence is not None else None
    if asked is not None:
        summary = asked.summary
        evidence = [*asked.evidence, *evidence]
    elif picture.stalled and not picture.sinks:
        summary = _stalled(known)
        needs += ["socket states of both ends", "native stacks"]
    elif picture.moving and not known.case:
        summary = (
            f"{name_ranks(picture.moving).capitalize()} still moved when "
            f"{'its dump was' if len(picture.moving) == 1 else 'their dumps were'} taken, "
            "so whether the job hangs cannot be told."
        )
    elif known.stuck or (picture.waits and not (known.case and long_rest(known))):
        waiting = open_question(picture) if not known.case else None
        summary = waiting.summary if waiting is not None else _hangs(known)
        evidence += _standings(known)
    else:
        summary = _unsound(known)
        if known.case and long_rest(known) is not None:
            evidence += _standings(known)
            needs.append(_a_later_look(known))
    needs = list(dict.fromkeys(needs))
    known.inputs.would_decide = needs
    return Verdict(
        status=Status.INCONCLUSIVE,
        summary=summary,
        collective=asked.collective if asked is not None else None,
        evidence=evidence,
        advice=("Get " + ", ".join(needs) + "." if needs else _look_closer(known)),
        inputs=known.inputs,
    )


def _hangs(known: Known) -> str:
    if known.case and known.all_ended:
        ended = [rank for rank, view in sorted(known.ranks.items()) if view.failed]
        return f"The job failed at {name_ranks(ended)}, but the evidence does not show why."
    outside = candidates(known) if known.case else []
    if not outside:
        return _HANGS
    stand = "stands" if len(outside) == 1 else "stand"
    return (
        f"{_HANGS[:-1]}: {name_ranks(outside)} {stand} outside of any operation, and nothing tells "
        "what for."
    )


def _standings(known: Known) -> list[Evidence]:
    """The lines at which the ranks of a Case stand."""
    found = []
    for rank, view in sorted(known.ranks.items())[:64]:
        line = name_line(view.location()) if view.ended is None else ""
        if line:
            found.append(Evidence("stack", rank, f"stands{line}"))
    return found


def _look_closer(known: Known) -> str:
    if known.case and known.all_ended:
        return (
            "Read what the ranks printed last, the one that ended first before the others; have "
            "the job write each rank's output to a file of its own (torchrun --redirects 3)."
        )
    if any(view.rank_stacks for view in known.ranks.values()):
        return (
            "Look at the lines where the ranks stand: at who holds, or should have left, what they "
            "wait for there, and at the store, files and locks that ranks share."
        )
    return "Record the job with stacks and host evidence."


def _needs(known: Known) -> list[str]:
    """The evidence that would settle what stays open, what tells most first."""
    picture = known.picture
    divergence = undecided_divergence(picture)
    needs = what_decides(picture, divergence) if divergence is not None else []
    needs += picture.would_decide
    needs += [f"rank {rank}'s dump" for rank in known.inputs.missing_ranks]
    if known.case:
        needs += [
            f"a stack of rank {rank}"
            for rank, view in sorted(known.ranks.items())
            if view.ended is None and view.standing.place is Place.UNKNOWN
        ]
    elif picture.endless:
        needs.append(f"the dumps of any ranks after {max(picture.expected)}")
    return needs


def _a_later_look(known: Known) -> str:
    patience = known.job.hang_after_s if known.job else None
    rest = f"for {patience:g} s" if patience else "for longer"
    return f"a capture of the job when nothing of it has moved {rest}"


def _stalled(known: Known) -> str:
    picture = known.picture
    op = picture.stalled[0].call.op
    if any(view.failed for view in known.ranks.values()):
        return (
            f"All ranks were inside the same {op} when the job failed, and nothing that they left "
            "tells why."
        )
    if not known.case and (picture.endless or picture.missing):
        return (
            f"All who left a dump are inside the same {op} and nothing finishes; whether ranks "
            "that left none are what it waits for cannot be told."
        )
    return (
        f"Everybody is inside the same {op} and nothing finishes; whether the network, "
        "a device or an argument that was not recorded is at fault cannot be told."
    )


def _at_rest(known: Known, rest: Rest) -> str:
    """Why a job that somebody looked at early is not called healthy, and where to look."""
    awaited = list(rest.awaited)
    who = (
        "Nothing of the job had"
        if rest.everybody
        else f"{name_ranks(awaited)} had not".capitalize()
    )
    its = "its" if rest.everybody or len(awaited) == 1 else "their"
    words = (
        f"{who} moved for {rest.seconds:.1f} s when it was looked at, and {its} longest pause "
        f"before was {rest.pause_s:.1f} s: whether it hangs cannot be told so soon."
    )
    if not awaited:
        return words
    line = name_line(known.ranks[awaited[0]].location())
    call = known.awaited(awaited[0])
    where = f" in {call.op}" if call is not None else ""
    where += f" number {call.seq}" if call is not None and call.seq is not None else ""
    stands = f"{'stands' if len(awaited) == 1 else 'stand'}{line}"
    return f"{words} The others wait{where} for {name_ranks(awaited)}, which {stands}."


def _unsound(known: Known) -> str:
    """Why a job in which nobody is seen to wait is not called healthy."""
    picture = known.picture
    rest = long_rest(known) if known.case else None
    if rest is not None:
        return _at_rest(known, rest)
    if picture.blank and not known.case:
        left = "a dump that tells" if len(picture.blank) == 1 else "dumps that tell"
        return (
            f"{name_ranks(picture.blank).capitalize()} left {left} of nothing, so whether the "
            "job is sound cannot be told."
        )
    if picture.missing and not picture.incomplete and not known.case:
        return (
            "All operations that the dumps know of are finished, but "
            f"{name_ranks(picture.missing)} left no dump, so whether the job is sound cannot be "
            "told."
        )
    if picture.endless and not picture.incomplete and not known.case:
        return (
            "All operations that the dumps know of are finished, but nothing in them says how "
            f"many ranks the job has: some after {max(picture.expected)} may have left no dump."
        )
    return "The evidence does not show whether the job is sound."
