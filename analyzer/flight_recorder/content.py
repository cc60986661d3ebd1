"""From the decoded object of one file to a RankDump."""

from __future__ import annotations

import marshal
from collections.abc import Callable
from typing import Any

import numpy as np

from hanglab.analyzer.flight_recorder.autograd_threads import as_calls_of_waiters
from hanglab.analyzer.flight_recorder.batch_numbers import number_batches
from hanglab.analyzer.flight_recorder.columns import ABSENT, Entries, GroupStatus, RankDump
from hanglab.analyzer.flight_recorder.decoding import Decoded
from hanglab.analyzer.flight_recorder.errors import DumpError
from hanglab.analyzer.flight_recorder.ring import read_entries
from hanglab.analyzer.flight_recorder.values import as_int, as_ranks, as_text

_OWN_KEYS = frozenset({"entries", "pg_config", "pg_status"})
_READ_KEYS = _OWN_KEYS | {"version", "comm_lib_version", "nccl_version"}
_VERSION_KEYS = frozenset({"comm_lib_version", "nccl_version", "nccl_comm_state"})
#: Bytes of what is kept as it came.
_MAX_EXTRA = 1 << 18
_MAX_PG_ID = 1 << 31
#: Numbers below this are told apart by a table of all of them.
_DENSE = 1 << 14
#: Keys that torch writes only where the value was measured.
_OPTIONAL = frozenset({"duration_ms"})


def read_content(
    decoded: Decoded,
    *,
    rank: int,
    source: str,
    from_json: bool,
    contained: bool,
    whole: Callable[[Entries], Entries] | None = None,
) -> RankDump:
    """The dump in ``decoded``; raises DumpError where it is something else.

    Where ``decoded`` has some of the entries only, ``whole`` makes all of them.
    """
    top = decoded.value
    if type(top) is not dict:
        raise DumpError(f"not a dump: {_kind(from_json)} of a {type(top).__name__}")
    if not (_OWN_KEYS & top.keys() or ("version" in top and _VERSION_KEYS & top.keys())):
        if decoded.damage:
            raise DumpError(f"damaged before anything of use: {decoded.damage}")
        raise DumpError(f"not a dump: {_kind(from_json)} without a dump's keys")
    dump = RankDump(rank=rank, source=source, version=as_text(top.get("version")))
    dump.library_version = as_text(top.get("comm_lib_version")) or as_text(top.get("nccl_version"))
    damages = [decoded.damage] if decoded.damage else []
    _read_config(top.get("pg_config"), dump)
    _read_status(top.get("pg_status"), dump)
    _read_extra(top, dump)
    entries = top.get("entries")
    if entries is not None:
        rows = _rows(entries, damages)
        if rows:
            try:
                dump.entries = read_entries(
                    rows, dump.descriptions, from_json=from_json, contained=contained
                )
            except RecursionError:
                raise DumpError("its entries nest too deeply") from None
            if whole is not None:
                dump.entries = whole(dump.entries)
            dump.entries = as_calls_of_waiters(number_batches(dump.entries))
            dump.names = _names(dump.entries)
    dump.partial = _partial(dump)
    if damages:
        count = len(dump.entries) if dump.entries is not None else 0
        damages.append(f"{count} entries were used")
        dump.damage = "; ".join(damages)
    return dump


def _kind(from_json: bool) -> str:
    return "JSON" if from_json else "a pickle"


def _rows(entries: Any, damages: list[str]) -> list[dict[str, Any]]:
    if type(entries) not in (list, tuple):
        damages.append(f"its entries are a {type(entries).__name__}")
        return []
    rows = [entry for entry in entries if type(entry) is dict]
    if damages and rows:
        # Next to a damage an entry may lack what the others have.
        keys = max(rows, key=len).keys() - _OPTIONAL
        rows = [row for row in rows if row and row.keys() >= keys]
    if len(rows) < len(entries):
        damages.append(f"{len(entries) - len(rows)} entries are no entries")
    return rows


def _read_config(config: Any, dump: RankDump) -> None:
    if type(config) is not dict:
        return
    for key, group in config.items():
        name = as_text(key)
        ranks: tuple[int, ...]
        if type(group) is dict:
            dump.descriptions[name] = as_text(group.get("desc"))
            ranks = as_ranks(group.get("ranks"))
        else:
            ranks = as_ranks(group)
        # gloo keeps one record under no name, of whichever group was made last.
        if name and ranks:
            dump.members[name] = ranks
        elif ranks:
            dump.nameless = ranks


def _read_status(status: Any, dump: RankDump) -> None:
    if type(status) is not dict:
        return

    def number(group: dict[Any, Any], which: str) -> int | None:
        value = as_int(group.get(f"last_{which}_collective"))
        return value if value >= 0 else None

    for key, group in status.items():
        pg_id = as_int(key)
        if type(group) is dict and pg_id != ABSENT:
            dump.status[pg_id] = GroupStatus(
                enqueued=number(group, "enqueued"),
                started=number(group, "started"),
                completed=number(group, "completed"),
            )


def _read_extra(top: dict[Any, Any], dump: RankDump) -> None:
    left = _MAX_EXTRA
    for key, value in top.items():
        if type(key) is not str or key in _READ_KEYS:
            continue
        try:
            left -= len(marshal.dumps(value))
        except ValueError:  # nests too deeply
            continue
        if left < 0:
            return
        dump.extra[key] = value


def _names(entries: Entries) -> dict[int, str]:
    """The name of each ``pg_id`` as the entries tie the two."""
    names: dict[int, str] = {}
    count = len(entries.group_names)
    known = (entries.pg_id >= 0) & (entries.pg_id < _MAX_PG_ID)
    codes = entries.pg_id[known] * count + entries.group[known]
    # np.unique would import numpy.ma: 30 ms.
    if len(codes) and int(codes.max()) < _DENSE:
        there = np.zeros(int(codes.max()) + 1, dtype=np.bool_)
        there[codes] = True
        distinct = np.flatnonzero(there).tolist()
    else:
        distinct = sorted(set(codes.tolist()))
    for code in distinct:
        pg_id, group = divmod(code, count)
        names[pg_id] = entries.group_names[group].name
    return names


def _partial(dump: RankDump) -> bool:
    """True where operations are missing that the dump itself says there were."""
    entries = dump.entries
    if entries is None:
        return any(status.enqueued for status in dump.status.values())
    record = entries.record_id
    if record[0] > 0 or (len(record) > 1 and int(record[-1] - record[0]) != len(record) - 1):
        return True
    # Record numbers without a gap: only what came after the last one can be missing.
    if entries.counts_p2p:
        return False
    for pg_id, status in dump.status.items():
        mine = entries.pg_id == pg_id
        # The last one enqueued may be a send or receive, which have numbers of their own.
        numbers = np.concatenate((entries.seq[mine], entries.p2p_seq[mine]))
        if status.enqueued and (not len(numbers) or int(numbers.max()) < status.enqueued):
            return True
    return False
