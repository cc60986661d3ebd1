"""The first sentence of a verdict: who did what, and who has waited for it since when."""

from __future__ import annotations

import re
import signal
from typing import Any

from hanglab.analyzer.facts.arrival_lag import arrivals
from hanglab.analyzer.facts.collateral_exits import failures
from hanglab.analyzer.facts.late_steps import late_steps
from hanglab.analyzer.flight_recorder.columns import ABSENT
from hanglab.analyzer.matching.calls import Call
from hanglab.analyzer.matching.signatures import CODE, call_site
from hanglab.analyzer.plain_text import shown
from hanglab.analyzer.verdict import CollectiveRef, Location, Status
from hanglab.analyzer.wording import (
    ANY_RANK,
    AWAY,
    BEHIND_LOOP,
    BEHIND_PEERS,
    CALLED_DIFFERENTLY,
    LET_GO,
    MISS,
    MISS_BY,
    MORE_INPUT,
    NEVER_ENTERED,
    UNTOLD,
    WAS_BLOCKED,
)
from hanglab.harness.report.explanation.cause_texts import text_of
from hanglab.harness.report.explanation.subject import Subject, line_name, ranks_name, without_line
from hanglab.recorder.case.operations import op_of

#: Characters of an observation in the first sentence.
_TOLD = 160
#: Evidence of a rank that waits for what a peer has.
#: What the analyzer says of a main thread, up to its line, and what it adds to that.
_OWN_WAIT = re.compile(r"its main thread ((?:waits|runs) .+?)(?= at \S+:\d|[:;,(]|$)")
_KEY_WAIT = re.compile(r"it ((?:waits|polls) for the store's key .+)")
_KEPT = ("file_locks", "store", "descriptors")
#: Description of groups that were given none.
_UNDESCRIBED = ("", "undefined")


class Words(dict[str, str]):
    """Fields of a cause's templates; what is not known is not in it."""

    def filled(self, templates: tuple[str, ...]) -> str | None:
        """The first template whose fields are all known."""
        for template in templates:
            try:
                return template.format_map(self)
            except KeyError:
                continue
        return None


def duration(seconds: float) -> str:
    """``38 ms``, ``1.7 s``, ``41 s``, ``12 min``, ``3.2 h``."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def call_name(call: Call | CollectiveRef) -> str:
    """``all_reduce #15 of default_pg``, ``send to rank 3 of pipeline``."""
    if isinstance(call, Call):
        name, described, members = call.group.name, call.group.description, call.group.members
        peer = call.peer
    else:
        name, described, members, peer = call.group_id, call.group, tuple(call.ranks), None
    group = described if described not in _UNDESCRIBED else name
    if described in _UNDESCRIBED and members:
        group = f"the group of {ranks_name(members)}"
    op = shown(call.op) or "an operation"
    if call.seq is not None:
        return f"{op} #{call.seq} of {shown(group)}"
    if peer is None:
        return f"{op} of {shown(group)}"
    return f"{op} {'to' if op_of(call.op).sends else 'from'} rank {peer} of {shown(group)}"


def headline(subject: Subject) -> str:
    """The first sentence of a verdict; its summary where no template of its cause fits."""
    verdict = subject.verdict
    summary = shown(verdict.summary or verdict.status.value, 2000)
    if verdict.cause is None or verdict.status in (Status.HEALTHY, Status.INCONCLUSIVE):
        return summary
    words = words_of(subject)
    text = text_of(verdict.cause.value)
    begun = words.filled(
        text.says_of_all if not verdict.victims and text.says_of_all else text.says
    )
    if begun is None or (not verdict.culprits and "{who}" in "".join(text.says).lower()):
        return summary
    return f"{begun}{_end(subject, words, begun)}.{_away(subject)}"


def _away(subject: Subject) -> str:
    """A sentence on ranks that are no culprits, and have not come to something, either."""
    away = [one.rank for one in subject.verdict.evidence if one.detail == AWAY]
    ranks = sorted({rank for rank in away if rank is not None} - {*subject.culprits})
    if ranks:
        has = AWAY if len(ranks) == 1 else AWAY.replace("has", "have")
        return f" R{ranks_name(ranks)[1:]} {has}."
    graph = subject.facts.graph if subject.facts is not None else None
    if graph is None or subject.verdict.status is not Status.HUNG or not subject.culprits:
        return ""
    named = {rank for one in subject.verdict.findings for rank in one.culprits}
    named |= {*subject.culprits, *subject.waiting_for_culprits, *graph.host_waits}
    for sink in graph.sinks:
        waiting = {wait.call.rank for wait in graph.waits if sink.rank in wait.on}
        waiting -= {*subject.waiting_for_culprits}
        idle = sink.outside and not graph.unfinished.get(sink.rank)
        if idle and waiting and sink.rank not in named:
            wait = "waits" if len(waiting) == 1 else "wait"
            return (
                f" Rank {sink.rank} has not come to what {ranks_name(sorted(waiting))} {wait} in, "
                "either."
            )
    return ""


def words_of(subject: Subject) -> Words:
    """Fields for the templates of the verdict's cause."""
    verdict = subject.verdict
    culprits, one = subject.culprits, len(subject.culprits) == 1
    words = Words()
    if culprits:
        who = ranks_name(culprits)
        if is_undecided(subject):
            sides = _sides(subject)
            who = "either " + " or ".join(map(ranks_name, sides))
            one = len(sides[-1]) == 1
        words |= {"who": who, "Who": who[0].upper() + who[1:]}
        words |= _SINGULAR if one else _PLURAL
    peers = [rank for rank in verdict.victims if rank not in culprits]
    if subject.divergence is not None:
        peers = sorted(set(subject.divergence.calls) - set(culprits)) or peers
    behind = {i.rank for i in verdict.evidence if i.detail.startswith(BEHIND_LOOP)}
    # Others may have left the loop as well, and in time.
    peers = [rank for rank in peers if rank not in behind] or peers
    single = len(peers) == 1
    words["peers"] = ranks_name(peers) if peers else "the others"
    words["are"] = "is" if single else "are"
    words["wait"] = "waits" if single else "wait"
    place = verdict.location
    words["at"] = f" at {line_name(place)}" if place is not None else ""
    # Where the culprit stands nobody may know: the line is that of who waits for it then.
    its_own = place is not None and place.rank in culprits
    one_line = its_own and not is_undecided(subject)
    words["by_line"] = f" ({line_name(place).split(' ')[0]})" if place and one_line else ""
    if place is not None:
        words["place"] = line_name(place)
    meant = subject.awaited or verdict.collective
    if meant is not None:
        words["call"] = call_name(meant)
    if verdict.collective is not None:
        # What others wait in may be a later call of theirs, in another group.
        words["shared"] = call_name(verdict.collective)
        group = verdict.collective.ranks
        members = [rank for rank in peers if rank in group or not group]
        words["members"] = ranks_name(members) if members else "the others"
        of_a_message = verdict.collective.seq is None
        if len(culprits) == 2 and (of_a_message or not members):
            words["members"] = "the other"  # The two are the group, or the message's ends.
        elif of_a_message:
            words["members"] = "the other end"
        words["misfit"] = f"those of {words['members']}"
        if len(culprits) > 1 and is_undecided(subject):
            words["misfit"] = "the other's" if len(culprits) == 2 else "each other's"
    kept = next((i for i in verdict.evidence if i.source in _KEPT and i.rank in peers), None)
    if kept is not None:
        # What it waits for, without who has it and what that one did.
        what = re.split(r"[,;] ", kept.detail, maxsplit=1)[0]
        words["kept"] = shown(what.partition(" ")[2], _TOLD)
        held = sorted({i.rank for i in verdict.evidence if i.source in _KEPT and i.rank in peers})
        words["held_ranks"], words["one_held"] = ranks_name(held), "s" if len(held) == 1 else ""
        same = "it" if len(held) == 1 else "them"
        words["whom"] = same if held == sorted(peers) else words["peers"]
    if MORE_INPUT in verdict.summary:
        words["more"] = MORE_INPUT
    if ANY_RANK in verdict.summary:
        words["any_rank"] = verdict.summary.removesuffix(".")
    if LET_GO in verdict.summary:
        words["let_go"] = LET_GO
    if verdict.summary.startswith(CALLED_DIFFERENTLY):
        words["asked"] = verdict.summary.removesuffix(".")
        words.pop("place", None)  # Where they stand now is not where they asked.
    if subject.divergence is not None and subject.divergence.thread_turns:
        words["turns"] = words["shared"].partition(" of ")[2] if "shared" in words else "a group"
    rows = [i for i in verdict.evidence if i.detail.startswith(WAS_BLOCKED)]
    if rows and {i.rank for i in rows} >= {*culprits}:
        words["blocked"] = "blocked"
    if MISS in verdict.summary:
        both, _, rest = verdict.summary.partition(MISS)
        words["both"], words["miss"] = both, rest.rpartition(MISS_BY)[2].removesuffix(".")
    _add_own_wait(words, subject)
    _add_absence(words, subject)
    message = subject.lone_message
    if message is not None and {*culprits} == {message.rank}:
        words["own_message"] = call_name(message)
    elif message is not None:
        words["message"] = f"rank {message.rank}'s {call_name(message)}"
    _add_effect(words, subject)
    _add_calls(words, subject, peers)
    _add_siblings(words, subject)
    _add_ring(words, subject)
    told = _told(subject, place)
    if told:
        words["told"] = told
    return words


#: Ranks whose lines are looked up for one sentence.
_LOOKED_AT = 64
_AGREEING = ("s", "es", "is_", "has", "does", "its", "it")
_SINGULAR = dict(zip(_AGREEING, ("s", "es", "is", "has", "does", "its", "it"), strict=True))
_PLURAL = dict(zip(_AGREEING, ("", "", "are", "have", "do", "their", "them"), strict=True))


def is_undecided(subject: Subject) -> bool:
    """True where one of the culprits did it, and nothing tells which."""
    return len(subject.culprits) > 1 and (subject.undecided or UNTOLD in subject.verdict.summary)


def _sides(subject: Subject) -> list[list[int]]:
    """The culprits, those together that made the same call."""
    calls = subject.divergence.calls if subject.divergence is not None else {}
    sides: dict[object, list[int]] = {}
    for rank in subject.culprits:
        call = calls.get(rank)
        kind: object = rank
        if call is not None:
            kind = call.op, call_site(call.stack), call.arguments
        sides.setdefault(kind, []).append(rank)
    return [*sides.values()] if len(sides) > 1 else [[rank] for rank in subject.culprits]


def _add_own_wait(words: Words, subject: Subject) -> None:
    """Field on what the main thread of the one culprit waits for in its process, if no lock."""
    rows = [i.detail for i in subject.verdict.evidence if i.rank in subject.culprits]
    found = [match[1] for row in rows if (match := _OWN_WAIT.search(row))]
    if len(subject.culprits) == 1 and found and " lock" not in found[0]:
        words["own_wait"] = shown(found[0], _TOLD)
    keys = [match[1] for row in rows if (match := _KEY_WAIT.match(row))]
    if len(subject.culprits) == 1 and keys:
        place = subject.verdict.location
        key = keys[0] if place is None else without_line(keys[0], line_name(place))
        words["key_wait"] = shown(key, _TOLD)


def _add_absence(words: Words, subject: Subject) -> None:
    """Fields on what keeps the one rank away that others wait for: its device, or its host."""
    if subject.is_outside:
        words["outside"] = ""
    told = [one.rank for one in subject.verdict.evidence if one.detail.startswith(NEVER_ENTERED)]
    absent = [rank for rank in subject.culprits if rank in told]
    waiting = [rank for rank in subject.culprits if rank not in told]
    if is_undecided(subject) and len(absent) == len(waiting) == 1 and subject.verdict.collective:
        words["pair"] = f"Rank {waiting[0]} waits in {words['shared']}, which rank {absent[0]}"
    sink, stopped = subject.lone_sink, None
    if sink is not None and subject.facts is not None:
        stopped = subject.facts.blocked(sink.rank)
    if sink is None or stopped is None:
        return
    if sink.unstarted:
        words["unstarted"] = call_name(sink.awaited)
    elif sink.by_exclusion:
        words["concluded"] = call_name(stopped)
        if sink.stalled:
            words["stalled"] = ranks_name(sink.stalled)
    elif sink.stopped_device:
        words["stopped"] = call_name(stopped)


def _add_effect(words: Words, subject: Subject) -> None:
    effect = subject.verdict.effect
    words["in_section"] = words["how_often"] = ""
    found = arrivals(subject.facts) if effect is not None and subject.facts is not None else None
    if found is not None and subject.facts is not None and subject.culprits:
        when = late_steps(subject.facts, found, subject.culprits[0])
        words["how_often"] = f", {when}," if when else ""
    if effect is not None:
        words["share"] = f"{effect.share_of_step:.0%}"
        words["lost"] = duration(effect.ms_per_step / 1000)
        if effect.section:
            words["in_section"] = f" in section {shown(effect.section)}"


def _add_calls(words: Words, subject: Subject, peers: list[int]) -> None:
    """The call of a culprit and that of its peers, where they differ."""
    found = subject.divergence
    if found is None or not subject.culprits:
        return
    mine = found.calls.get(subject.culprits[0])
    theirs = next((found.calls[rank] for rank in peers if rank in found.calls), None)
    same = mine is not None and theirs is not None and mine.op == theirs.op
    if same and mine is not None and theirs is not None and _by_size_alone(mine, theirs):
        words["by_size"] = shown(mine.op)
    for key, call in (("mine", mine), ("theirs", theirs)):
        if call is None:
            continue
        words[key] = shown(call.op) if key == "mine" else call_name(call)
        if key == "theirs":
            words["missed"] = _missed(subject, call)
            if any(one.detail.startswith(BEHIND_PEERS) for one in subject.verdict.evidence):
                # It left its peers' loop since, and the call out on the way.
                words["missed"] = f"one or more operations up to {call_name(call)}"
        if same:
            words["same"] = call_name(call)
        elif key == "mine":
            words["differing"] = words[key]
        if key == "mine":
            # It may have come to another call since, whose line is the verdict's.
            words["next"] = f"{'the next ' if same else ''}{shown(call.op)}{_at_line(call)}"
        given: Any = call.arguments
        if given.input_sizes:
            sizes = [list(size) for size in given.input_sizes]
            words[f"{key}_sizes"] = shown(", ".join(map(str, sizes)), 80)
        if given.input_dtypes:
            words[f"{key}_dtypes"] = shown(", ".join(dict.fromkeys(given.input_dtypes)), 80)
        if given.root is not None:
            words[f"{key}_root"] = f"root {given.root}"


def _add_ring(words: Words, subject: Subject) -> None:
    """The ring of messages of which the culprits alone could have let all go on."""
    graph = subject.facts.graph if subject.facts is not None else None
    for cycle in graph.cycles if graph is not None else ():
        if cycle.p2p and {*subject.culprits} < {*cycle.ranks}:
            ring = ranks_name(sorted(cycle.ranks))
            words["Ring"] = ring[0].upper() + ring[1:]


def _add_siblings(words: Words, subject: Subject) -> None:
    """The calls at which the culprit and those in its place in other replicas part."""
    graph = subject.facts.graph if subject.facts is not None else None
    for departure in graph.departures if graph is not None else ():
        if departure.siblings and subject.culprits == (departure.rank,):
            mine, theirs = departure.call, departure.instead
            for key, call in (("made", mine), ("usual", theirs)):
                named = "" if call is None else f"{call_name(call)}{_at_line(call)}"
                words[key] = named or "nothing more"
            words["siblings"] = ranks_name(departure.siblings)


def _missed(subject: Subject, call: Call) -> str:
    """The call that a rank left out; where those before it are alike, it may be one of these."""
    lookup = subject.facts.graph.lookup if subject.facts is not None else None
    entries = lookup.entries(call.rank) if lookup is not None else None
    if lookup is None or entries is None or call.seq is None:
        return call_name(call)
    at = lookup.index_of(call.rank, call.group.name, call.seq - 1)
    if at == ABSENT or (entries.operation_at(at).op, entries.arguments_at(at)) != (
        call.op,
        call.arguments,
    ):
        return call_name(call)
    if call_site(entries.stack_at(at)) != call_site(call.stack):
        return call_name(call)
    op, _, rest = call_name(call).partition(f" #{call.seq}")
    return f"one {op}{rest}, #{call.seq} at the latest,"


def _at_line(call: Call) -> str:
    frame = next(iter(CODE.user_frames(call.stack)), None)
    return "" if frame is None else f" at {line_name(frame)}"


def _by_size_alone(mine: Call, theirs: Call) -> bool:
    """True of the same operation from one line of the user's, on tensors of other sizes."""
    lines = [CODE.user_frames(call.stack)[:1] for call in (mine, theirs)]
    sizes = [call.arguments.input_sizes for call in (mine, theirs)]
    return bool(lines[0]) and lines[0] == lines[1] and all(sizes) and sizes[0] != sizes[1]


def _told(subject: Subject, place: Location | None) -> str:
    """The first observation of a culprit, without its line."""
    culprits = set(subject.culprits)
    for item in subject.verdict.evidence:
        if item.rank in culprits and item.source != "flight_recorder":
            detail = item.detail
            if place is not None:
                detail = without_line(detail, line_name(place))
            return shown(detail, _TOLD).removesuffix(".")
    return ""


def _end(subject: Subject, words: Words, begun: str) -> str:
    """The end of the sentence: who waits, for how long or how much, and where."""
    verdict = subject.verdict
    waiting = subject.waiting_for_culprits
    if not waiting or (not verdict.culprits and len(waiting) == subject.world_size):
        waited = subject.waited_s
        return f"; nothing has moved for {duration(waited)}" if waited else ""
    who = ranks_name(waiting)
    one = len(waiting) == 1
    if who in begun and not one:
        who = "they"
    it = words.get("it", "it")
    if verdict.status is Status.HUNG:
        return _waiting(subject, words, begun, who, one, it)
    if verdict.status is Status.SLOW and verdict.effect is not None:
        if text_of(verdict.cause and verdict.cause.value).once:
            return f"; {who} waited {words['lost']} for {it}"
        waits = f"; {who} wait{'s' if one else ''}"
        if verdict.effect.ms_per_step:
            return f"{waits} {words['lost']} a step for {it} ({words['share']} of the time)"
        return f"{waits} for {it} {words['share']} of the time"
    if verdict.status is Status.FAILED:
        return _failed(subject, begun, it)
    if verdict.status is Status.CORRUPT:
        return "; nobody waits for it, and its results are undefined"
    return ""


def _failed(subject: Subject, begun: str, it: str) -> str:
    """Words for those who ended badly with the culprits, as far as that was seen."""
    views = {rank: subject.view(rank) for rank in subject.waiting}
    failed = [rank for rank, view in views.items() if view is not None and view.failed]
    if not failed:
        return "; the job failed"
    ends = [view.ended for rank in failed if (view := views[rank]) is not None]
    if all(end is not None and end.signal == signal.SIGTERM for end in ends):
        return "; the job failed"  # Its launcher ended them for the others' failure.
    who = ranks_name(failed)
    if who in begun and len(failed) > 1:
        who = "they"
    if subject.divergence is not None:
        return f"; {who} failed too"
    known = failures(subject.facts) if subject.facts is not None else ()
    gave_up = {one.view.rank for one in known if one.gave_up}
    # Who fails once another one has given up has lost that one.
    how = f"lost {it}" if gave_up.isdisjoint(failed) else f"waited for {it} in vain"
    return f"; {who} {how} and failed"


def _waiting(subject: Subject, words: Words, begun: str, who: str, one: bool, it: str) -> str:
    waited = subject.waited_s
    has = "has" if one else "have"
    since = f"{has} waited {duration(waited)}" if waited else f"wait{'s' if one else ''}"
    for_it = f" for {it}" if subject.culprits else ""
    call = words.get("call")
    told = call is None or call in begun or "kept" in words or not subject.all_wait_there
    where = "" if told else f" in {call}"
    line = ""
    if subject.awaited is not None and subject.all_wait_there and _on_one_line(subject):
        site = victim_line(subject)
        if site and site not in begun:
            line = f", {site}"
    return f"; {who} {since}{for_it}{where}{line}"


def _on_one_line(subject: Subject) -> bool:
    """True unless those who wait, some of them where they are many, are seen at several lines."""
    if subject.facts is None:
        return True
    calls = map(subject.facts.blocked, subject.waiting_for_culprits[:_LOOKED_AT])
    return len({site for call in calls if call is not None and (site := call_site(call.stack))}) < 2


def victim_line(subject: Subject) -> str:
    """``train.py:88``: the line at which those who wait made their call."""
    from hanglab.analyzer.facts.call_wording import location

    place = location(subject.awaited)
    if place is None and subject.awaited is not None:
        view = subject.view(subject.awaited.rank)
        place = view.location() if view is not None else None
    return line_name(place).split(" ")[0] if place is not None else ""
