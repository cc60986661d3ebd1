"""The verdict where no heuristic has anything to say: healthy, or honestly undecided."""

from __future__ import annotations

import re

import msgspec

from hanglab.analyzer.causes.graph_findings import open_finding
from hanglab.analyzer.causes.network.rendezvous import still_joining
from hanglab.analyzer.causes.straggler.speed_evidence import speed_evidence
from hanglab.analyzer.causes.synchronization.divergence import (
    deciding_evidence,
    undecided_divergence,
    undecided_finding,
)
from hanglab.analyzer.causes.synchronization.missing_rank import (
    ranks_that_may_move,
    ranks_without_dump,
)
from hanglab.analyzer.causes.thresholds import LISTED_ROWS, UNSEEN_SPEED
from hanglab.analyzer.facts.absent_ranks import absent_ranks, computes
from hanglab.analyzer.facts.call_wording import name_call
from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.facts.collateral_exits import ended_at_once, failures
from hanglab.analyzer.facts.device_progress import states
from hanglab.analyzer.facts.error_texts import Kind, classify
from hanglab.analyzer.facts.host_waits import host_waits, wait_evidence
from hanglab.analyzer.facts.idle_time import IdleTime, ranks_that_wait_for_long, unusual_idle_time
from hanglab.analyzer.facts.polls import polls
from hanglab.analyzer.facts.scheduler import asked_to_end, told_why
from hanglab.analyzer.facts.stack_position import StackPlace
from hanglab.analyzer.flight_recorder.columns import ABSENT, State
from hanglab.analyzer.graph.thresholds import FULL_RANKS
from hanglab.analyzer.graph.wait_for_graph import Wait, WaitForGraph
from hanglab.analyzer.matching.calls import Call
from hanglab.analyzer.strengths import SHOWN
from hanglab.analyzer.verdict import Evidence, Status, Verdict
from hanglab.analyzer.wording import (
    Need,
    break_off,
    name_line,
    name_needs,
    name_ranks,
    need_dump,
    need_later_dump,
    need_stack,
    need_whole_dump,
)

#: Evidence that tells why ranks that are all in one place do not go on.
_OF_BOTH_ENDS = [Need("native stacks"), Need("socket states of both ends")]
_PLURAL = re.compile(r"^(wait|poll)s\b")
_HANGS = "The job hangs, but the evidence does not show why."


def healthy(facts: CaseFacts) -> Verdict | None:
    """A verdict if the job ended well, still moves, or shows nothing unfinished; else None."""
    if facts.case:
        if _unseen(facts):
            return None
        if facts.all_succeeded:
            why = "Every rank came to its end with exit code 0."
        elif facts.stuck or facts.watchdog_spoke or not facts.ranks:
            return None
        elif any(view.failed for view in facts.ranks.values()):
            return None
        elif _makes_progress(facts):
            why = "The job makes progress, and no rank is seen to slow it down."
        else:
            return None
    elif facts.logs_alone:
        if not facts.success or any(view.failed for view in facts.ranks.values()):
            return None
        why = f"A launcher says that all ranks which it started succeeded: {facts.success[-200:]}"
    else:
        graph = facts.graph
        if graph.waits or graph.missing or graph.divergences:
            return None
        if graph.progressing or graph.incomplete or graph.world_size_unknown or graph.empty:
            return None
        if graph.idle_s or graph.no_entries or graph.copied:
            return None
        why = "All operations that the dumps know of are finished and matched."
        if graph.broken_off:
            cut = sorted(graph.broken_off)
            last = "finished its last operations" if len(cut) == 1 else "finished their last ones"
            why += (
                f" {break_off(cut).capitalize()}; the counters of groups before that tell that "
                f"{name_ranks(cut)} {last} as all peers did."
            )
    advice = "Nothing to do."
    ended = _by_scheduler(facts)
    if ended is not None and not facts.all_succeeded:
        why, advice = f"{ended[0]}; until then it made progress.", ended[1]
    speed = speed_evidence(facts)
    facts.inputs.would_decide = speed.would_decide
    if speed.unseen:
        why += f" Whether {name_ranks(speed.unseen)} slowed it down could not be seen."
    elif speed.in_turns is not None:
        why += (
            f" But its ranks wait {speed.in_turns:.0%} of the time for each other by turns, for "
            "none of them for long: their work differs from step to step."
        )
        advice = "If that time matters, give all ranks like amounts of work in each step."
    return Verdict(
        status=Status.HEALTHY,
        confidence=UNSEEN_SPEED if speed.unseen else SHOWN,
        summary=why,
        evidence=speed.evidence,
        inputs=facts.inputs,
        advice="Get " + ", ".join(speed.would_decide) + "." if speed.would_decide else advice,
    )


def _unseen(facts: CaseFacts) -> list[int]:
    """Ranks that nobody could compare with their peers: they may be the slow ones."""
    seen = {rank for rank, view in facts.ranks.items() if view.progress is not None}
    return sorted({*facts.ranks, *facts.inputs.missing_ranks} - seen) if seen else []


def _by_scheduler(facts: CaseFacts) -> tuple[str, str] | None:
    """Sentence on the end that a scheduler gave the job, and what to do; None without one."""
    scheduler = facts.scheduler
    if scheduler is None or asked_to_end(scheduler) is None:
        return None
    return told_why(scheduler)


def _makes_progress(facts: CaseFacts) -> bool:
    # Who has asked the same for as long as a hang takes says now and then that it waits: no more.
    movements = [
        view.movement
        for view in facts.ranks.values()
        if view.ended is None and all(p.asked_s < facts.hang_after_s for p in polls(view))
    ]
    if not any(m is not None and m.quiet_s < facts.hang_after_s for m in movements):
        return False
    # A rank that looks for the store tries again and again: that is movement, and no progress.
    if any(
        v.ended is None and v.position.place is StackPlace.RENDEZVOUS for v in facts.ranks.values()
    ):
        return False
    return unusual_idle_time(facts) is None and not ranks_that_wait_for_long(facts)


def _inconclusive(facts: CaseFacts, summary: str, advice: str) -> Verdict:
    return Verdict(status=Status.INCONCLUSIVE, summary=summary, advice=advice, inputs=facts.inputs)


def _nothing_recorded(facts: CaseFacts) -> Verdict:
    """Dumps of a recorder that was off, or of which nothing was asked."""
    ranks = facts.graph.ranks
    facts.inputs.would_decide = name_needs(
        Need("{}'s dump with its operations", "the dumps of {} with their operations", rank)
        for rank in ranks
    )
    dumps, know = ("the dump", "knows") if len(ranks) == 1 else ("the dumps", "know")
    return _inconclusive(
        facts,
        f"Nothing was recorded: {dumps} of {name_ranks(ranks)} {know} of no operation.",
        "Switch Flight Recorder on before the job starts (TORCH_FR_BUFFER_SIZE=2000, in older "
        "torch TORCH_NCCL_TRACE_BUFFER_SIZE=2000), and dump with collectives while it hangs.",
    )


def _only_logs(facts: CaseFacts) -> Verdict:
    """Logs that tell of no failure, or only of what others brought about."""
    ended = sorted(rank for rank, view in facts.ranks.items() if view.failed)
    silent = facts.inputs.missing_ranks
    facts.inputs.would_decide = name_needs(
        [
            *(Need("{}'s log", "the logs of {}", rank) for rank in silent),
            Need("Flight Recorder dumps of all ranks"),
        ]
    )
    if ended:
        many = len(ended) > 1
        summary = (
            f"{name_ranks(ended).capitalize()} gave up, lost {'peers' if many else 'a peer'} or "
            f"{'were' if many else 'was'} ended, and no log that is here tells of what went wrong "
            "first."
        )
    elif facts.ranks:
        summary = f"The logs of {name_ranks(sorted(facts.ranks))} tell of no failure."
    else:
        summary = "No line of the logs tells which rank wrote it, or which rank has ended how."
    advice = f"Get {', '.join(facts.inputs.would_decide)}."
    if not facts.ranks:
        advice += " Have each rank write to a file of its own (torchrun --redirects 3)."
    return _inconclusive(facts, summary, advice)


def _no_rank_found(facts: CaseFacts) -> Verdict:
    """A Case of a command that started no rank."""
    return _inconclusive(
        facts,
        "No rank was found: no process of the command was given a RANK or joined a process group.",
        "Read what the command printed and ended with. Where it has the ranks started "
        "elsewhere, record the command that starts them, or call recorder.start() in each.",
    )


def undecided(facts: CaseFacts) -> Verdict:
    """``inconclusive``, with what is known and what would settle it."""
    graph = facts.graph
    if facts.case and not facts.ranks and not facts.inputs.missing_ranks:
        return _no_rank_found(facts)
    joining = still_joining(facts)
    if joining is not None:
        facts.inputs.would_decide = name_needs(_OF_BOTH_ENDS)
        verdict = _inconclusive(facts, joining.summary, joining.advice)
        return msgspec.structs.replace(verdict, victims=joining.victims, evidence=joining.evidence)
    if facts.logs_alone and not graph.waits:
        return _only_logs(facts)
    if not facts.case and graph.empty == graph.ranks:
        return _nothing_recorded(facts)
    needs = _needs(facts)
    evidence = [
        Evidence(
            "flight_recorder",
            wait.call.rank,
            f"waits in {wait.call.op or 'an operation'}"
            + (f" number {wait.call.seq}" if wait.call.seq is not None else "")
            + (f" for {name_ranks(wait.on)}" if wait.on else ""),
        )
        for wait in graph.waits[:LISTED_ROWS]
    ]
    may_be_missing = ranks_that_may_move(graph) if not facts.case else None
    others = may_be_missing[1] if may_be_missing is not None else []
    divergence = undecided_divergence(graph)
    asked = undecided_finding(graph, divergence) if divergence is not None else None
    if asked is not None:
        summary = asked.summary
        evidence = [*asked.evidence, *evidence]
    elif graph.stalled and not graph.sinks:
        summary = _stalled(facts)
        needs += reversed(_OF_BOTH_ENDS)
    elif may_be_missing is not None:
        summary = may_be_missing[0]
    elif facts.case and facts.all_ended and any(view.failed for view in facts.ranks.values()):
        summary = _hang_summary(facts)
    elif facts.stuck or (graph.waits and not (facts.case and unusual_idle_time(facts))):
        waiting = open_finding(graph) if not facts.case else None
        summary = waiting.summary if waiting is not None else _hang_summary(facts)
        others = ranks_without_dump(graph) if waiting is not None else []
        evidence += wait_evidence(waits := host_waits(facts), sorted(waits))
        evidence += _current_lines(facts)
    else:
        summary = _unproved_health(facts)
        if facts.case and unusual_idle_time(facts) is not None:
            evidence += _current_lines(facts)
            needs.append(_a_later_look(facts))
    ended = _by_scheduler(facts)
    if ended is not None and not facts.stuck:
        summary = f"{ended[0]}; what it did until then the evidence does not show."
    evidence += _before_restart(facts)
    told = facts.inputs.would_decide = name_needs(needs)
    return Verdict(
        status=Status.INCONCLUSIVE,
        summary=summary,
        collective=asked.collective if asked is not None else None,
        evidence=evidence,
        advice=("Get " + ", ".join(told) + "." if told else _look_closer(facts, ended)),
        alternatives=others,
        inputs=facts.inputs,
    )


def _ring(graph: WaitForGraph) -> list[Wait]:
    """Waits of ranks each of which waits for the next one alone, the last for the first."""
    first: dict[int, Wait] = {}
    for wait in graph.waits:
        first.setdefault(wait.call.rank, wait)
    for rank in sorted(first):
        path: list[int] = []
        while rank in first and len(first[rank].on) == 1 and rank not in path:
            path.append(rank)
            (rank,) = first[rank].on
        if rank in path:
            ring = path[path.index(rank) :]
            start = ring.index(min(ring))
            return [first[one] for one in ring[start:] + ring[:start]]
    return []


def _hang_summary(facts: CaseFacts) -> str:
    if facts.case and facts.all_ended:
        if sent := ended_at_once(facts):
            names = " and ".join(sorted(one.name for one in sent))
            return (
                f"All ranks were ended by {names} within a second: somebody else ended the job, or "
                "its launcher once one of them was gone; nothing shows which."
            )
        known = failures(facts)
        if met := sorted(failure.view.rank for failure in known if failure.differs):
            return (
                f"{name_ranks(met).capitalize()} ended in an operation in which a peer's data did "
                "not fit: ranks called different operations, and which of them is wrong the "
                "evidence does not show."
            )
        ended = [rank for rank, view in sorted(facts.ranks.items()) if view.failed]
        # Whom others ended did not fail.
        by_others = {failure.view.rank for failure in known if failure.collateral}
        ended = [rank for rank in ended if rank not in by_others] or ended
        return f"The job failed at {name_ranks(ended)}, but the evidence does not show why."
    outside = absent_ranks(facts) if facts.case else []
    if not outside and facts.graph.host_waits:
        return _host_wait_summary(facts)
    if not outside:
        ring = _ring(facts.graph)
        if ring:
            who = name_ranks(sorted(wait.call.rank for wait in ring)).capitalize()
            return (
                f"{who} wait for each other in a ring, the first in {name_call(ring[0].call)}; "
                "which of them is out of turn the evidence does not show."
            )
        return _HANGS
    verb = "is" if len(outside) == 1 else "are"
    recorded = all(
        facts.ranks[rank].progress is not None for rank in outside if rank in facts.ranks
    )
    where = "not in any operation" if recorded else "in no operation that is known"
    why = ", and nothing shows why"
    first = facts.ranks[outside[0]]
    if len(outside) == 1 and first.movement is not None and computes(first):
        why = (
            f" and has used {first.movement.cpu_share:.0%} of a core for "
            f"{first.movement.quiet_s:.0f} s, as long work does, and an endless loop"
        )
    return f"{_HANGS[:-1]}: {name_ranks(outside)} {verb} {where}{why}."


def _host_wait_summary(facts: CaseFacts) -> str:
    """Words for waits on hosts of which nothing tells who had to act first."""
    waits = host_waits(facts)
    alike: dict[str, list[int]] = {}
    for rank, wait in sorted(waits.items()):
        alike.setdefault(wait.words, []).append(rank)
    told = []
    for words, ranks in list(alike.items())[:LISTED_ROWS]:
        verb = words if len(ranks) == 1 else _PLURAL.sub(r"\1", words, count=1)
        told.append(f"{name_ranks(ranks)} {verb}")
    calls = {wait.call.rank: wait.call.op for wait in facts.graph.waits}
    told += [
        f"rank {rank} waits in {calls[rank]}"
        for rank in sorted({other for wait in waits.values() for other in wait.on})
        if rank in calls
    ]
    who = "Who of them had to act first" if len(told) > 1 else "Who was to end that"
    return f"{_HANGS[:-1]}: {'; '.join(told)}. {who} cannot be told."


def _before_restart(facts: CaseFacts) -> list[Evidence]:
    """Exceptions that ended earlier attempts, without their consequences."""
    told = []
    for one in facts.raised_before:
        text = f"{one.raised.type}: {one.raised.message}"
        if classify(text, Kind.CONSEQUENCE) is None:
            detail = f"attempt {one.attempt} ended by {text.splitlines()[0][:300]}"
            told.append(Evidence("exceptions", one.rank, detail))
    return told[:LISTED_ROWS]


def _current_lines(facts: CaseFacts) -> list[Evidence]:
    """The lines at which the ranks of a Case stand."""
    found = []
    for rank, view in sorted(facts.ranks.items())[:LISTED_ROWS]:
        line = name_line(view.location()) if view.ended is None else ""
        if line:
            found.append(Evidence("stack", rank, f"is{line}"))
    return found


def _look_closer(facts: CaseFacts, ended: tuple[str, str] | None) -> str:
    if ended is not None and not facts.stuck:
        return ended[1]
    if facts.case and facts.all_ended:
        return (
            "Read what the ranks printed last, the one that ended first before the others; have "
            "the job write each rank's output to a file of its own (torchrun --redirects 3)."
        )
    if any(view.rank_stacks for view in facts.ranks.values()):
        return (
            "Look at the lines where the ranks are: at who holds, or should have left, what they "
            "wait for there, and at the store, files and locks that ranks share."
        )
    return "Record the job with stacks and host evidence."


def _needs(facts: CaseFacts) -> list[Need]:
    """The evidence that would settle what stays open, what tells most first."""
    graph = facts.graph
    divergence = undecided_divergence(graph)
    needs = deciding_evidence(graph, divergence) if divergence is not None else []
    needs += [need for need in graph.needs if not _is_met(need, facts)]
    needs += [need_dump(rank) for rank in facts.inputs.missing_ranks]
    if facts.case:
        needs += [
            Need("a stack of {}", "a stack of each of {}", rank)
            for rank, view in sorted(facts.ranks.items())
            if view.ended is None and view.position.place is StackPlace.UNKNOWN
        ]
        if not facts.stuck:
            unseen = _unseen(facts)
            needs += [Need("{}'s progress", "the progress of {}", rank) for rank in unseen]
    else:
        if graph.world_size_unknown:
            needs.append(Need(f"the dumps of any ranks after {max(graph.expected)}"))
        if not needs and not graph.waits and graph.behind and not graph.lost_ends:
            needs.append(Need("dumps of all ranks from one moment"))
        if not needs and not graph.waits and (graph.idle_s or graph.no_entries or graph.copied):
            needs += [Need("stacks of all ranks"), Need("a later dump of each rank")]
        if not needs:
            needs += [need_later_dump(rank) for rank in sorted(graph.progressing)]
        needs += [need_whole_dump(rank) for rank in sorted(graph.broken_off)]
    return needs


def _is_met(need: Need, facts: CaseFacts) -> bool:
    """True if it asks for the stack of a rank of which there is one."""
    if need.rank is None or need != need_stack(need.rank):
        return False
    view = facts.ranks.get(need.rank)
    return view is not None and view.captured_stack is not None


def _a_later_look(facts: CaseFacts) -> Need:
    patience = facts.job.hang_after_s if facts.job else None
    idle = unusual_idle_time(facts)
    if patience and idle is not None and idle.seconds >= patience:
        return Need("a second capture some time later, which tells whether anything moved")
    waiting = f"for {patience:g} s" if patience else "for longer"
    return Need(f"a capture of the job when nothing of it has moved {waiting}")


def _states(facts: CaseFacts, call: Call) -> dict[int, State]:
    """Each member's state of a collective, in a bare folder of dumps as well."""
    lookup, members = facts.graph.lookup, call.group.members
    if facts.dumps or lookup is None or call.seq is None or len(members) > FULL_RANKS:
        return states(facts, call)
    found: dict[int, State] = {}
    for rank in members:
        entries, at = lookup.entries(rank), lookup.index_of(rank, call.group.name, call.seq)
        if entries is not None and at != ABSENT:
            found[rank] = State(int(entries.state[at]))
    return found


def _stalled(facts: CaseFacts) -> str:
    graph = facts.graph
    first = graph.stalled[0].call
    op = first.op
    if first.seq is None:
        return (
            f"Rank {first.rank}'s {name_call(first)} has its other half and does not finish; what "
            "either of them is queued behind, the network, or a device cannot be told apart."
        )
    members = set(first.group.members)
    inside = name_ranks(sorted(members)).capitalize()
    unseen = not facts.case and (graph.world_size_unknown or bool(graph.missing))
    if any(view.failed for view in facts.ranks.values()):
        who = "All ranks" if members >= set(facts.ranks) and not unseen else inside
        return (
            f"{who} were inside the same {op} when the job failed, and nothing that was left "
            "tells why."
        )
    if members >= set(graph.ranks):
        all_ = "All who left a dump are" if unseen else "Everybody is"
        words = f"{all_} inside the same {op} and nothing finishes"
    else:
        verb = "is" if len(members) == 1 else "are"
        words = f"{inside} {verb} inside {name_call(first)}, and nobody finishes it"
    known = _states(facts, first)
    begun = sorted(rank for rank, state in known.items() if state is State.STARTED)
    waiting = sorted(rank for rank, state in known.items() if state is State.SCHEDULED)
    if len(begun) > len(waiting) > 0:
        devices, has = ("device", "has") if len(waiting) == 1 else ("devices", "have")
        words += (
            f"; the {devices} of {name_ranks(waiting)} {has} not begun it, those of "
            f"{name_ranks(begun)} have"
        )
    if unseen:
        return f"{words}; whether ranks that left no dump are what it waits for cannot be told."
    return (
        f"{words}; whether the network, a device or an argument that was not recorded is at fault "
        "cannot be told."
    )


def _idle_summary(facts: CaseFacts, idle: IdleTime) -> str:
    """Words for why a job captured early is not called healthy, and where to look."""
    awaited = list(idle.awaited)
    who = (
        "Nothing of the job had"
        if idle.everybody
        else f"{name_ranks(awaited)} had not".capitalize()
    )
    its = "its" if idle.everybody or len(awaited) == 1 else "their"
    patience = facts.job.hang_after_s if facts.job else None
    early = not patience or idle.seconds < patience
    words = (
        f"{who} moved for {idle.seconds:.1f} s when it was looked at, and {its} longest pause "
        f"before was {idle.pause_s:.1f} s: whether it hangs cannot be told "
        f"{'so soon' if early else 'from one look'}."
    )
    if not awaited:
        return words
    line = name_line(facts.ranks[awaited[0]].location())
    call = facts.awaited(awaited[0])
    where = f" in {call.op}" if call is not None else ""
    where += f" number {call.seq}" if call is not None and call.seq is not None else ""
    verb = "is" if len(awaited) == 1 else "are"
    return f"{words} The others wait{where} for {name_ranks(awaited)}, which {verb}{line}."


def _unproved_health(facts: CaseFacts) -> str:
    """Words for why a job in which nobody is seen to wait is not called healthy."""
    graph = facts.graph
    idle = unusual_idle_time(facts) if facts.case else None
    if idle is not None:
        return _idle_summary(facts, idle)
    if facts.watchdog_spoke:
        return (
            "A time limit of the job's own struck, or an operation failed, so that torch dumped "
            "its buffers; which rank is to blame the evidence does not show."
        )
    unseen = _unseen(facts) if facts.case and not facts.stuck else []
    if unseen:
        verb = "has" if len(unseen) == 1 else "have"
        return (
            f"Nothing wrong was found, but {name_ranks(unseen)} {verb} left no progress, so "
            f"whether {'it keeps its' if len(unseen) == 1 else 'they keep their'} peers waiting "
            "cannot be told."
        )
    if graph.empty and not facts.case:
        left = "a dump that tells" if len(graph.empty) == 1 else "dumps that tell"
        return (
            f"{name_ranks(graph.empty).capitalize()} left {left} of nothing, so whether the "
            "job is sound cannot be told."
        )
    if graph.lost_ends and not facts.case:
        cut = sorted(graph.lost_ends)
        return (
            f"Nothing that the dumps show is unfinished, but {break_off(cut)}: what "
            f"{name_ranks(cut)} did last, and whether the job is sound, cannot be told."
        )
    if graph.behind and not facts.case:
        less, asked = (
            ("has done less than its peers", "it was dumped earlier, or is late")
            if len(graph.behind) == 1
            else ("have done less than their peers", "they were dumped earlier, or are late")
        )
        return (
            f"Nothing that the dumps show is unfinished, but by them {name_ranks(graph.behind)} "
            f"{less}: whether {asked}, cannot be told."
        )
    if graph.missing and not graph.incomplete and not facts.case:
        return (
            "All operations that the dumps know of are finished, but "
            f"{name_ranks(graph.missing)} left no dump, so whether the job is sound cannot be "
            "told."
        )
    if graph.world_size_unknown and not graph.incomplete and not facts.case:
        return (
            "All operations that the dumps know of are finished, but nothing in them says how "
            f"many ranks the job has: some after {max(graph.expected)} may have left no dump."
        )
    if graph.idle_s and not facts.case:
        return (
            "All operations that the dumps know of are finished, but no rank had done anything "
            f"for {graph.idle_s:.0f} s when they were written: whether the job was through or "
            "stood still outside of them, or in what leaves no entry, cannot be told."
        )
    if graph.no_entries and not facts.case:
        return (
            "All operations that the dumps count are finished, but no dump has an entry that "
            "would tell when: whether the job goes on or stands still cannot be told."
        )
    if graph.copied and not facts.case:
        return (
            "All operations that the dumps know of are finished, but their files have the times of "
            "copies: for how long nothing had been done when they were written, and whether the "
            "job stood still in what leaves no entry, as groups of gloo, cannot be told."
        )
    return "The evidence does not show whether the job is sound."
