"""The analyzer's front: a folder in, a verdict out."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hanglab.analyzer.branching.decision_points import NoDecision, decision_of
from hanglab.analyzer.calibration import calibrate
from hanglab.analyzer.causes.thresholds import LISTED_ROWS
from hanglab.analyzer.decision import Fallen, decide
from hanglab.analyzer.facts.assembly import gather_worlds
from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.facts.collateral_exits import failures
from hanglab.analyzer.facts.differing_settings import differences
from hanglab.analyzer.fallback import healthy, undecided
from hanglab.analyzer.hypotheses.check import check_hypotheses
from hanglab.analyzer.hypotheses.settled_ties import settle_ties
from hanglab.analyzer.proposal import Heuristic, Proposal
from hanglab.analyzer.registry import heuristics
from hanglab.analyzer.strengths import CANDIDATES
from hanglab.analyzer.verdict import Cause, Evidence, Finding, Status, Unusable, Verdict
from hanglab.recorder.case.backends import backends_in


def analyze(path: Path | str, chosen: Sequence[tuple[str, Heuristic]] | None = None) -> Verdict:
    """Conclude from a Case, or from a bare folder of Flight Recorder dumps.

    Reads nothing but what lies below ``path``.  ``chosen`` are heuristics by name, to run in place
    of all that are installed.  Raises InputError, with what to do next, if nothing there can be
    analysed.
    """
    return examine(path, chosen).verdict


@dataclass(frozen=True)
class Examination:
    """A verdict, the evidence that it was concluded from, and the proposals that fell."""

    verdict: Verdict
    facts: CaseFacts
    fallen: list[Fallen]
    #: One of its culprits did it, and nothing tells which.
    undecided: bool
    #: Verdicts on what else lay there: other jobs, earlier or later attempts.
    beside: list[Verdict] = field(default_factory=list)


def examine(path: Path | str, chosen: Sequence[tuple[str, Heuristic]] | None = None) -> Examination:
    """The verdict of :func:`analyze` with what explains it.  Raises InputError."""
    worlds = gather_worlds(Path(path))
    fallen: list[list[Fallen]] = [[] for _ in worlds]
    verdicts = [conclude(facts, chosen, fell) for facts, fell in zip(worlds, fallen, strict=True)]
    verdict = gravest(worlds, verdicts)
    place = next(index for index, one in enumerate(verdicts) if one is verdict)
    # A ring of messages is of all its ranks' making.
    undecided = (
        len(verdict.culprits) > 1
        and verdict.confidence <= CANDIDATES
        and verdict.cause is not Cause.P2P_DEADLOCK
    )
    beside = [calibrate(one) for one in verdicts if one is not verdict]
    return Examination(calibrate(verdict), worlds[place], fallen[place], undecided, beside)


#: What every verdict on a job without a device says.
EMULATED = (
    "The device was emulated on the CPU: what NCCL's links, protocols and kernels would do is not "
    "told by it."
)
#: Statuses, gravest first.
_GRAVITY = (
    Status.HUNG,
    Status.FAILED,
    Status.CORRUPT,
    Status.SLOW,
    Status.INCONCLUSIVE,
    Status.HEALTHY,
)


def gravest(worlds: Sequence[CaseFacts], verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict that people have to know of, where jobs lie side by side; of equals the first.

    A job that left fewer dumps than it lacks tells of nothing beside one that left more, nor does
    an attempt that was restarted, unless it shows what went wrong: then a later one that is
    healthy does not hide it.  One that was dumped on its way need not have ended before the other.
    """

    def gravity(judged: tuple[CaseFacts, Verdict]) -> int:
        facts, verdict = judged
        inputs = verdict.inputs
        over = facts.restarted and not facts.graph.progressing
        tells = not over and len(inputs.missing_ranks) < inputs.ranks
        unsure = verdict.status is Status.INCONCLUSIVE
        return _GRAVITY.index(verdict.status) + 2 * (unsure and not tells)

    return min(zip(worlds, verdicts, strict=True), key=gravity)[1]


def conclude(
    facts: CaseFacts,
    chosen: Sequence[tuple[str, Heuristic]] | None = None,
    fallen: list[Fallen] | None = None,
) -> Verdict:
    """The verdict on evidence already gathered, with strengths that are not calibrated yet.

    Proposals that did not stand are added to ``fallen``.

    A heuristic that fails costs itself only and stands under ``inputs.unusable``;
    a job that it might have accused is not called healthy.
    """
    proposals: list[Proposal] = []
    failed: list[Unusable] = []
    ranks = _ranks_of(facts)
    for name, heuristic in heuristics() if chosen is None else chosen:
        try:
            proposals += _run(heuristic, facts, ranks)
        except (Exception, SystemExit) as error:
            failed.append(Unusable(f"heuristic {name}", f"{type(error).__name__}: {error}"))
    unusable = facts.inputs.unusable
    unusable += [one for one in failed if one not in unusable]
    known = {one.file for one in unusable}
    # Of files that only a heuristic reads.
    unusable += [Unusable(str(file), why) for file, why in facts.problems if str(file) not in known]
    _, verdict = decide(facts, settle_ties(facts, check_hypotheses(facts, proposals)), fallen)
    verdict = verdict or healthy(facts) or undecided(facts)
    if verdict.status is Status.CORRUPT and _hangs(facts):
        verdict = _beside_unexplained_hang(facts, verdict)
    if failed and verdict.status is Status.HEALTHY:
        verdict = _not_fully_checked(facts, len(failed))
    if verdict.status is Status.INCONCLUSIVE:
        verdict.evidence = [*verdict.evidence, *_failures_seen(facts)]
    if verdict.status is not Status.HEALTHY:
        verdict.evidence = [*verdict.evidence, *differences(facts.ranks)]
    _add_decisions(facts, verdict)
    if facts.inputs.set_aside:
        verdict.evidence = [*verdict.evidence, _judged(facts)]
    if _was_emulated(facts):
        verdict.evidence = [*verdict.evidence, Evidence("backend", None, EMULATED)]
    return verdict


#: Statuses of jobs whose ranks may have parted.
_PARTED = (Status.HUNG, Status.FAILED, Status.CORRUPT, Status.INCONCLUSIVE)


def _add_decisions(facts: CaseFacts, verdict: Verdict) -> None:
    """Name the statement that parted the ranks of each finding, or say why none can be named."""
    for number, finding in enumerate(verdict.findings):
        if finding.status not in _PARTED or not finding.culprits:
            continue
        # The first finding is what the verdict says.
        told: list[Finding | Verdict] = [finding]
        if number == 0 and finding.culprits == verdict.culprits:
            told.append(verdict)
        try:
            decision = decision_of(facts, finding)
        except Exception as error:  # the source is a stranger's, and a verdict needs none
            decision = NoDecision(f"the source could not be followed: {type(error).__name__}")
        for one in told:
            if isinstance(decision, NoDecision):
                detail = f"the statement that parted the ranks is not named: {decision.reason}"
                one.evidence = [*one.evidence, Evidence("source", None, detail)]
            else:
                one.decision = decision


def was_emulated(verdict: Verdict) -> bool:
    """True if the verdict says that no GPU was behind its job's groups."""
    return any(one.detail == EMULATED for one in verdict.evidence)


def _was_emulated(facts: CaseFacts) -> bool:
    """True if no GPU was behind the job's groups, by its Case or by its dumps."""
    settings = {group.backend for view in facts.ranks.values() for group in view.groups}
    if any(backend.emulated for setting in settings for backend in backends_in(setting)):
        return True
    return facts.graph.emulated


def _hangs(facts: CaseFacts) -> bool:
    return facts.stuck if facts.case else bool(facts.graph.waits)


def _beside_unexplained_hang(facts: CaseFacts, corrupt: Verdict) -> Verdict:
    """The hang is what the verdict is about; wrong results are a finding beside it."""
    verdict = undecided(facts)
    verdict.findings = corrupt.findings
    verdict.summary = (
        f"{verdict.summary} Besides, {corrupt.summary[0].lower()}{corrupt.summary[1:]}"
    )
    return verdict


def _ranks_of(facts: CaseFacts) -> set[int]:
    """Ranks that the job is known to have, whether they left anything or not."""
    graph, inputs = facts.graph, facts.inputs
    known = {*facts.ranks, *graph.ranks, *graph.expected, *inputs.missing_ranks}
    known.update(*(group.members for group in graph.groups))
    size = facts.job.world_size if facts.job is not None else None
    return known | set(range(size or 0))


def _run(heuristic: Heuristic, facts: CaseFacts, ranks: Collection[int]) -> list[Proposal]:
    """Proposals of one heuristic.

    Raises whatever it raises, TypeError for anything but proposals, and ValueError for one that
    is no finding about a job of these ranks: what it says otherwise is not believed either.
    """
    proposals = list(heuristic(facts))
    for proposal in proposals:
        if not isinstance(proposal, Proposal):
            raise TypeError(f"it proposed {type(proposal).__name__}, which is no Proposal")
        if problem := proposal.problem(ranks):
            raise ValueError(f"it proposed {problem}")
    return proposals


def _judged(facts: CaseFacts) -> Evidence:
    """The files that the verdict is about, where others lie beside them."""
    other = len(facts.inputs.set_aside)
    files = "1 file is" if other == 1 else f"{other} files are"
    return Evidence(
        "flight_recorder",
        None,
        f"judged by the files {facts.inputs.world}; {files} {facts.inputs.set_aside[0].reason}",
    )


def _failures_seen(facts: CaseFacts) -> list[Evidence]:
    """Exceptions and ends of ranks, where they name no culprit."""
    return [Evidence(t.source, t.view.rank, t.detail) for t in failures(facts)[:LISTED_ROWS]]


def _not_fully_checked(facts: CaseFacts, failed: int) -> Verdict:
    one = failed == 1
    return Verdict(
        status=Status.INCONCLUSIVE,
        summary=f"Nothing wrong was found, but {failed} heuristic{' was' if one else 's were'} "
        "not able to look.",
        advice=f"Mend or uninstall the heuristic{'' if one else 's'} named as not usable.",
        inputs=facts.inputs,
    )
