"""A mutant's verdict against its truth."""

from __future__ import annotations

from enum import Enum
from pathlib import Path

import msgspec

from hanglab.analyzer.verdict import Cause, Status, Verdict
from hanglab.harness.jobs.outcome import describe, same_file
from hanglab.harness.mutation.mutant import Mutant
from hanglab.harness.mutation.observation import End, JobObservation
from hanglab.harness.mutation.truth import FaultEffect

_NOTHING_SAID = (Status.HEALTHY, Status.INCONCLUSIVE)


class Fate(str, Enum):
    """Fate of a mutant."""

    FOUND = "found"  # the cause, the ranks and the line are right
    MISSED = "missed"  # at least one of them is not
    SILENT = "silent"  # the fault struck, and the job ended well
    #: The faulty line never ran on the culprit, or cost less than ranks differ by without it.
    NOT_STRUCK = "not struck"
    ERROR = "error"  # the job could not be run or judged


class MutantJudgement(msgspec.Struct, kw_only=True):
    """One mutant, judged; also as JSON."""

    mutant: str
    operator: str
    summary: str
    line: int
    fate: Fate
    expected_causes: list[Cause]
    expected_culprits: list[int]
    expected_lines: list[int]
    end: End | None = None
    verdict: str = ""
    location: str | None = None
    #: The verdict says that something is wrong.
    detected: bool = False
    cause_right: bool = False
    rank_right: bool = False
    #: None where no line can be expected.
    line_right: bool | None = None
    #: The statement at which the ranks' ways part, as far as one is named; None where none parts
    #: them.
    branch_named: bool | None = None
    branch_right: bool | None = None
    #: Ranks named that had no part in it.
    accused: list[int] = []
    same_output: bool = False
    #: Share of its rank's time that a fault took which only costs time.
    cost_share: float | None = None
    seconds: float = 0.0
    reason: str = ""
    artifacts: str | None = None


def judge(
    mutant: Mutant,
    verdict: Verdict | None,
    observation: JobObservation | None,
    reason: str = "",
    *,
    chance_share: float = 0.0,
    enqueued: bool = False,
) -> MutantJudgement:
    """Compares; ``reason`` says why there is no verdict.

    ``enqueued``: hosts do not wait in their calls, so that the line is right, too, of the culprit's
    first call after the fault.
    ``chance_share`` is the share of the time by which ranks of the original differ: what costs no
    more has not struck, whatever the verdict is.
    """
    truth = mutant.truth
    lines = list(range(mutant.line, mutant.end + 1))
    result = MutantJudgement(
        mutant=mutant.name,
        operator=mutant.operator.name,
        summary=mutant.summary,
        line=mutant.line,
        fate=Fate.ERROR,
        expected_causes=truth.causes,
        expected_culprits=truth.culprits,
        expected_lines=lines,
        reason=reason,
    )
    if verdict is None or observation is None:
        return result
    result.end, result.same_output = observation.end, observation.same_output
    result.verdict = describe(verdict)
    place = verdict.location
    result.location = f"{Path(place.file).name}:{place.line}" if place else None
    result.detected = verdict.status not in _NOTHING_SAID
    named = {*verdict.culprits, *(rank for one in verdict.findings for rank in one.culprits)}
    result.accused = sorted(named - truth.guilty) if result.detected else []
    result.cost_share = observation.cost_share
    unseen = truth.effect is FaultEffect.SLOWS and (
        observation.cost_share is not None and observation.cost_share <= chance_share
    )
    if unseen:
        result.reason = (
            f"it cost {observation.cost_share:.1%} of the time, and ranks of the original "
            f"differ by {chance_share:.1%}"
        )
    if unseen or not observation.struck:
        result.fate = Fate.NOT_STRUCK
        return result
    ended_well = observation.end is End.WELL and truth.effect is FaultEffect.STOPS
    if ended_well and not result.detected:
        result.fate = Fate.SILENT
        return result
    _compare(result, mutant, verdict, observation, enqueued)
    if mutant.branches and observation.end is not End.WELL:
        decision = verdict.decision
        result.branch_named = decision is not None
        result.branch_right = (
            decision is not None
            and decision.line in mutant.branches
            and same_file(decision.file, mutant.path)
        )
    right = result.cause_right and result.rank_right and result.line_right is not False
    result.fate = Fate.FOUND if right and not result.accused else Fate.MISSED
    return result


def _compare(
    result: MutantJudgement,
    mutant: Mutant,
    verdict: Verdict,
    observation: JobObservation,
    enqueued: bool,
) -> None:
    truth = mutant.truth
    # What the fault made the culprit raise by itself is a right answer too.
    own = [one for one in observation.raised if one.own and one.rank in truth.guilty]
    culprits = sorted(verdict.culprits)
    causes = set(truth.causes)
    if own:
        causes.add(Cause.EXCEPTION)
        result.expected_causes = list(dict.fromkeys([*truth.causes, Cause.EXCEPTION]))
    allowed = set(truth.also_named)
    answers = [
        answer
        for answer in truth.answers
        if culprits == answer.culprits
        or (set(answer.culprits) <= set(culprits) <= set(answer.culprits) | allowed)
    ]
    result.rank_right = result.detected and bool(answers)
    in_answer = {cause for answer in answers for cause in answer.causes} | (
        {Cause.EXCEPTION} if own else set()
    )
    result.cause_right = result.detected and verdict.cause in (in_answer or causes)
    ended = truth.effect is FaultEffect.STOPS and set(truth.culprits) <= observation.gone
    if truth.has_line and not ended:
        seen = set(observation.standing.values()) | {one.line for one in observation.raised}
        if enqueued:
            seen |= set(observation.calling.values())
        result.expected_lines = sorted({*result.expected_lines, *(line for line in seen if line)})
        place = verdict.location
        result.line_right = (
            place is not None
            and place.line in result.expected_lines
            and same_file(place.file, mutant.path)
        )


__all__ = ["Fate", "MutantJudgement", "judge"]
