"""Hypothesis strategies: dumps with anything in any place, and damaged bytes of real ones."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from hanglab.analyzer.program.torch_pickle import torch_pickle

DATA = Path(__file__).parents[1] / "data" / "dumps"
SEEDS = [
    path.read_bytes()
    for path in sorted(DATA.rglob("*"))
    if path.is_file() and path.suffix != ".py" and path.stat().st_size < 8000
]

_plain = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 70), 1 << 70),
    st.integers(-2, 5),
    st.floats(allow_nan=True),
    st.text(max_size=8),
    st.sampled_from(["", "-1", "12", "[0, 1]", "[]", "nccl:send 0->1", "completed", "nan", "1e5"]),
)
anything = st.recursive(
    _plain,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=4), inner, max_size=3),
    ),
    max_leaves=8,
)


def _or_anything(usual: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.integers(0, 9).flatmap(lambda die: anything if die == 0 else usual)


_count = st.integers(-1, 50)
_frame = st.fixed_dictionaries(
    {},
    optional={
        "name": _or_anything(st.sampled_from(["train", "step"])),
        "filename": _or_anything(st.just("train.py")),
        "line": _or_anything(_count),
    },
)
_sizes = st.lists(st.lists(_count, max_size=3), max_size=3)
_dtypes = st.lists(st.sampled_from(["Float", "BFloat16", "Long"]), max_size=3)
_time = st.one_of(st.none(), st.integers(0, 1 << 62))
_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "frames": st.lists(_or_anything(_frame), max_size=4),
    "record_id": _count,
    "pg_id": _count,
    "process_group": st.sampled_from([("0", "default_pg"), ["1", "tp"], ("", ""), "0", ("0",)]),
    "thread_name": st.sampled_from(["python", "pt_autograd_0"]),
    "thread_id": st.sampled_from(["1", "2"]),
    "collective_seq_id": _count,
    "p2p_seq_id": _count,
    "op_id": _count,
    "profiling_name": st.sampled_from(["nccl:all_reduce", "gloo:barrier", "nccl:recv 0<-1", "x"]),
    "time_created_ns": _time,
    "duration_ms": st.floats(0, 100),
    "input_sizes": _sizes,
    "input_dtypes": _dtypes,
    "output_sizes": _sizes,
    "output_dtypes": _dtypes,
    "state": st.sampled_from(["scheduled", "started", "completed"]),
    "time_discovered_started_ns": _time,
    "time_discovered_completed_ns": _time,
    "retired": st.booleans(),
    "timeout_ms": _count,
    "is_p2p": st.booleans(),
}
_entry = st.fixed_dictionaries(
    {}, optional={key: _or_anything(value) for key, value in _FIELDS.items()}
)
_FRAMES = [{"name": f"f{n}", "filename": "train.py", "line": n} for n in range(4)]
_whole_entry = st.fixed_dictionaries(
    {
        **{key: value for key, value in _FIELDS.items() if key != "duration_ms"},
        "frames": st.lists(st.sampled_from(_FRAMES), max_size=4),
    }
)
_group = st.fixed_dictionaries(
    {},
    optional={
        "name": _or_anything(st.just("0")),
        "desc": _or_anything(st.just("default_pg")),
        "ranks": _or_anything(st.sampled_from(["[0, 1]", "[]", [0, 1], ["0", "1"]])),
    },
)
_status = st.fixed_dictionaries(
    {},
    optional={f"last_{word}_collective": _or_anything(_count) for word in ("enqueued", "started")},
)
_id = st.sampled_from(["0", "1", "", "-1", "x"])
dumps = st.fixed_dictionaries(
    {"version": _or_anything(st.sampled_from(["2.1", "2.10", "2.10.1", "3.0"]))},
    optional={
        "pg_config": _or_anything(st.dictionaries(_id, _or_anything(_group), max_size=3)),
        "pg_status": _or_anything(st.dictionaries(_id, _or_anything(_status), max_size=3)),
        "entries": _or_anything(st.lists(_or_anything(_entry), max_size=5)),
        "comm_lib_version": _or_anything(st.just("2.27")),
        "nccl_version": _or_anything(st.just("2.20")),
        "nccl_comm_state": anything,
    },
)


@st.composite
def pickled(draw: st.DrawFn) -> tuple[Any, bytes]:
    value = draw(dumps)
    return value, pickle.dumps(value, draw(st.integers(0, pickle.HIGHEST_PROTOCOL)))


@st.composite
def repeating(draw: st.DrawFn) -> bytes:
    """A ring as torch writes it, of few kinds of entries, perhaps with some bytes changed."""
    kinds = draw(st.lists(_whole_entry, min_size=1, max_size=4))
    order = draw(st.lists(st.sampled_from(range(len(kinds))), min_size=6, max_size=30))
    entries = [{**kinds[kind], "record_id": n, "op_id": n + 250} for n, kind in enumerate(order)]
    return _changed(draw, torch_pickle({"version": "2.10", "entries": entries}))


def _changed(draw: st.DrawFn, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(changed) - 1))
        changed[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return bytes(changed)


@st.composite
def alike(draw: st.DrawFn) -> list[bytes]:
    """Rings of ranks that run the same program, but for names, numbers, the end, some bytes."""
    kinds = draw(st.lists(_whole_entry, min_size=1, max_size=4))
    order = draw(st.lists(st.sampled_from(range(len(kinds))), min_size=10, max_size=40))
    files = []
    for _ in range(draw(st.integers(2, 4))):
        names = draw(st.sampled_from(["01", "12", "11", "x1", ("", "1")]))
        first = draw(st.integers(0, 3))
        end = draw(st.integers(0, 3))
        entries = [
            {
                **kinds[kind],
                "record_id": n + first,
                "op_id": n + first + 250,
                "time_created_ns": 1_700_000_000_000_000_000 + n * 7 + first,
                "process_group": (names[kind % 2], f"group {kind % 2}"),
            }
            for n, kind in enumerate(order[: len(order) - end])
        ]
        config = {name: {"name": name, "desc": "d", "ranks": "[0, 1]"} for name in names}
        top = {"version": "2.10", "pg_config": config, "entries": entries}
        files.append(torch_pickle(top))
    return [_changed(draw, data) if draw(st.booleans()) else data for data in files]


@st.composite
def in_json(draw: st.DrawFn) -> bytes:
    return json.dumps(draw(dumps)).encode()


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A real file with some bytes replaced, removed, repeated or added."""
    data = draw(st.sampled_from(SEEDS))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, max(0, len(data) - 1)))
        size = draw(st.integers(0, 40))
        kind = draw(st.integers(0, 3))
        if kind == 0:
            data = data[:start] + data[start + size :]
        elif kind == 1:
            data = data[:start] + draw(st.binary(max_size=8)) + data[start:]
        elif kind == 2:
            data = data[: start + size] + data[start:]
        else:
            data = data[:start] + draw(st.binary(max_size=8)) + data[start + 4 :]
    return data
