"""Operations of a rank that have not finished, and the channels of its messages."""

from __future__ import annotations

from math import prod

import numpy as np
import numpy.typing as npt

from hanglab.analyzer.flight_recorder.columns import (
    ABSENT,
    Arguments,
    Bool,
    Entries,
    Int32,
    Int64,
    RankDump,
    State,
)
from hanglab.analyzer.matching.completion import Completion
from hanglab.analyzer.matching.entry_queries import thread_of
from hanglab.analyzer.matching.summary import MessageArguments, P2PChannel, Pending, RankSummary
from hanglab.analyzer.matching.thresholds import MESSAGE_RUNS
from hanglab.recorder.case.backends import backend_of
from hanglab.recorder.case.operations import op_of


def read_pending(
    entries: Entries, summary: RankSummary, completion: Completion, dump: RankDump
) -> None:
    part_index, p2p, ends = completion.group, completion.p2p, completion.ends
    done = completion.done
    positions: npt.NDArray[np.int64] = np.zeros(len(entries), dtype=np.int64)
    _read_channels(entries, summary, part_index, p2p & ~ends, done, positions, dump.posted)
    batches: dict[tuple[int, bool, int], int] = {}
    last_done = int(np.flatnonzero(done)[-1]) if done.any() else ABSENT
    last_of_thread = _last_of_threads(entries, done)
    begun = _begun(entries, part_index, p2p, ends)
    for index in np.flatnonzero(~done & ~completion.undetermined).tolist():
        operation = entries.operation_at(index)
        number, kind = int(part_index[index]), bool(p2p[index])
        if not kind and entries.seq[index] < 0:
            continue
        order = index
        counter = int(entries.p2p_seq[index]) if kind else int(entries.seq[index])
        if counter > 0:
            order = batches.setdefault((number, kind, counter), index)
        if ends[index] and order != index:
            # Its members stand for it.
            continue
        summary.pending.append(
            Pending(
                index=index,
                order=order,
                part=number,
                seq=None if kind else int(entries.seq[index]),
                op=operation.op,
                src=operation.src if kind else ABSENT,
                dst=operation.dst if kind else ABSENT,
                tag=operation.tag,
                position=int(positions[index]),
                posted=index in dump.posted,
                thread=thread_of(entries, index),
                held=index in dump.held,
                overtaken=index < last_done and index not in dump.held,
                passed=index < last_of_thread[int(entries.thread[index])]
                and index not in dump.held,
                started=begun.get((number, kind, counter), begun.get(index)),
                on_device=backend_of(operation.backend).enqueued,
                created_ns=int(entries.created_ns[index]),
                timeout_ns=int(float(entries.timeout_ms[index]) * 1e6),
            )
        )


def _last_of_threads(entries: Entries, done: Bool) -> dict[int, int]:
    """Index of the last operation of each thread that has finished, ABSENT without any."""
    found = {}
    for thread in set(entries.thread.tolist()):
        rows = np.flatnonzero(done & (entries.thread == thread))
        found[thread] = int(rows[-1]) if len(rows) else ABSENT
    return found


def _begun(
    entries: Entries, part_index: Int32, p2p: Bool, ends: Bool
) -> dict[int | tuple[int, bool, int], bool]:
    """True, by entry, or by group, kind and number for batches, where the device has begun it.

    {} without timing: no buffer tells of a beginning then.  Members of a batch keep the state that
    they were written with, so what closes it tells of all; but one that has begun has begun.
    """
    started = entries.state == State.STARTED
    if not started.any() and not (entries.started_ns > 0).any():
        return {}
    open_ = np.flatnonzero(started | (entries.state == State.SCHEDULED))
    found: dict[int | tuple[int, bool, int], bool] = {}
    begun: dict[int | tuple[int, bool, int], bool] = {}
    for index in open_.tolist():
        kind = bool(p2p[index])
        counter = int(entries.p2p_seq[index]) if kind else int(entries.seq[index])
        found[index] = bool(started[index])
        batch = int(part_index[index]), kind, counter
        begun[batch] = begun.get(batch, False) or bool(started[index])
        if ends[index]:
            found[batch] = False
    return {key: begun.get(key, value) for key, value in found.items()}


def _read_channels(
    entries: Entries,
    summary: RankSummary,
    part_index: Int32,
    chosen: Bool,
    done: Bool,
    positions: Int64,
    posted: frozenset[int],
) -> None:
    rows = np.flatnonzero(chosen)
    if not len(rows):
        return
    key = part_index[rows].astype(np.int64) * len(entries.operations) + entries.operation[rows]
    for channel in sorted(set(key.tolist())):
        mine = rows[key == channel]
        number, operation = divmod(channel, len(entries.operations))
        what = entries.operations[operation]
        positions[mine] = np.arange(len(mine))
        finished = done[mine]
        summary.parts[number].channels.append(
            P2PChannel(
                src=what.src,
                dst=what.dst,
                sends=op_of(what.op).sends,
                posted=len(mine),
                done=int(finished.sum()),
                open=tuple(np.flatnonzero(~finished).tolist()),
                awaited=tuple(
                    at for at in np.flatnonzero(~finished).tolist() if int(mine[at]) not in posted
                ),
                tag=what.tag,
                arguments=_message_arguments(entries, mine, op_of(what.op).sends),
            )
        )


def _message_arguments(
    entries: Entries, rows: Int64, sends: bool
) -> tuple[tuple[int, MessageArguments], ...]:
    """Runs of the arguments of a channel's messages, the first ``MESSAGE_RUNS``."""
    codes = entries.argument[rows]
    starts = np.flatnonzero(np.append(True, codes[1:] != codes[:-1]))[: MESSAGE_RUNS + 1]
    ends = [*starts[1:].tolist(), len(rows)][:MESSAGE_RUNS]
    runs: list[tuple[int, MessageArguments]] = []
    for start, end in zip(starts.tolist(), ends, strict=False):
        one = _of_message(entries.arguments[int(codes[start])], sends)
        count = end - start
        if runs and runs[-1][1] == one:
            count += runs.pop()[0]
        runs.append((count, one))
    return tuple(runs)


def _of_message(given: Arguments, sends: bool) -> MessageArguments:
    sent = given.input_sizes, given.input_dtypes
    taken = given.output_sizes, given.output_dtypes
    sizes, dtypes = (sent if sent[0] else taken) if sends else (taken if taken[0] else sent)
    return MessageArguments(sum(map(prod, sizes)), dtypes[0] if len(set(dtypes)) == 1 else "")
