"""The verdict where no heuristic has anything to say: healthy, or honestly undecided."""

from __future__ import annotations

from hanglab.analyzer.evidence.model import Evidence as Known
from hanglab.analyzer.evidence.standing import Place
from hanglab.analyzer.heuristics.proposal import name_ranks
from hanglab.analyzer.verdict import Evidence, Status, Verdict


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
        if picture.moving or picture.incomplete:
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
    return bool(movements) and any(m is not None and m.quiet_s < limit for m in movements)


def undecided(known: Known) -> Verdict:
    """``inconclusive``, with what is known and what would settle it."""
    picture = known.picture
    would_decide = list(picture.would_decide)
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
    for rank in known.inputs.missing_ranks:
        would_decide.append(f"rank {rank}'s dump")
    if known.case:
        for rank, view in sorted(known.ranks.items()):
            if view.ended is None and view.standing.place is Place.UNKNOWN:
                would_decide.append(f"a stack of rank {rank}")
    known.inputs.would_decide = list(dict.fromkeys(would_decide))
    if picture.stalled and not picture.sinks:
        call = picture.stalled[0].call
        summary = (
            f"Everybody is inside the same {call.op} and nothing finishes; whether the network, "
            "a device or an argument that was not recorded is at fault cannot be told."
        )
        known.inputs.would_decide += [
            need
            for need in ("socket states of both ends", "native stacks")
            if need not in known.inputs.would_decide
        ]
    elif picture.moving and not known.case:
        summary = (
            f"{name_ranks(picture.moving).capitalize()} still moved when "
            f"{'its dump was' if len(picture.moving) == 1 else 'their dumps were'} taken, "
            "so whether the job hangs cannot be told."
        )
    elif known.stuck or picture.waits:
        summary = "The job hangs, but the evidence does not show why."
    else:
        summary = "The evidence does not show whether the job is sound."
    return Verdict(
        status=Status.INCONCLUSIVE,
        summary=summary,
        evidence=evidence,
        advice=(
            "Get " + ", ".join(known.inputs.would_decide) + "."
            if known.inputs.would_decide
            else "Record the job with stacks and host evidence."
        ),
        inputs=known.inputs,
    )
