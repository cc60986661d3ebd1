"""Traces for Perfetto, parsed back: tracks, nesting, flows, counters, profiles on one clock."""

from __future__ import annotations

import json
import shutil
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pages import unpacked

from hanglab.harness.cli import main
from hanglab.harness.report.perfetto_trace.kineto import kineto_threads
from hanglab.harness.report.perfetto_trace.lanes import Slice, begins_and_ends, lanes_of

pb2 = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")


@dataclass
class Parsed:
    """A trace as its packets say, with the slices of each track put together again."""

    names: dict[int, str] = field(default_factory=dict)
    parents: dict[int, int] = field(default_factory=dict)
    #: Track -> (begin, end, name, flows, notes).
    slices: dict[int, list[tuple[int, int, str, list[int], dict[str, Any]]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    instants: list[tuple[int, int, str]] = field(default_factory=list)
    values: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))

    def track(self, name: str, of: str = "") -> list[int]:
        """Tracks of a name, below a process whose name begins with ``of``."""
        return [
            number
            for number, own in self.names.items()
            if own == name and self.names.get(self.parents.get(number, 0), "").startswith(of)
        ]


def parse(file: Path) -> Parsed:
    trace = pb2.Trace()
    trace.ParseFromString(file.read_bytes())
    parsed = Parsed()
    open_slices: dict[int, list[tuple[int, str, list[int], dict[str, Any]]]] = defaultdict(list)
    latest: dict[int, int] = {}
    for packet in trace.packet:
        assert packet.trusted_packet_sequence_id
        if packet.HasField("track_descriptor"):
            told = packet.track_descriptor
            parsed.names[told.uuid] = told.name or told.process.process_name
            parsed.parents[told.uuid] = told.parent_uuid
        if not packet.HasField("track_event"):
            continue
        event, track, at = packet.track_event, packet.track_event.track_uuid, packet.timestamp
        assert track in parsed.names
        if event.type == event.TYPE_SLICE_BEGIN:
            assert latest.get(track, 0) <= at
            notes = {
                note.name: note.int_value
                if note.HasField("int_value")
                else note.bool_value
                if note.HasField("bool_value")
                else note.string_value
                for note in event.debug_annotations
            }
            open_slices[track].append((at, event.name, list(event.flow_ids), notes))
        elif event.type == event.TYPE_SLICE_END:
            begin, *rest = open_slices[track].pop()
            parsed.slices[track].append((begin, at, *rest))
        elif event.type == event.TYPE_INSTANT:
            parsed.instants.append((track, at, event.name))
        elif event.type == event.TYPE_COUNTER:
            parsed.values[track].append(event.double_counter_value)
        latest[track] = at
    assert not any(open_slices.values())
    return parsed


def traced(job: Path, folder: Path) -> Parsed:
    target = folder / "hang.pftrace"
    assert main(["trace", str(job), "-o", str(target)]) == 0
    return parse(target)


def test_each_rank_has_its_groups_calls_and_sections(tmp_path: Path) -> None:
    parsed = traced(unpacked("local/skipped_collective.fault", tmp_path), tmp_path)
    for rank in range(4):
        (group,) = parsed.track("group default_pg", f"rank {rank} ")
        (calls,) = parsed.track("calls and waits", f"rank {rank} ")
        assert parsed.track("sections", f"rank {rank} ")
        *_, last = sorted(parsed.slices[group])
        wanted = "broadcast" if rank == 1 else "all_reduce"
        assert last[2] == f"{wanted} (not ended)"
        assert last[4]["seq"] == 11 and last[4]["not_ended"] is True
        assert "skipped_collective" in last[4]["line"]
        assert any(name.startswith("wait for") for _, _, name, _, _ in parsed.slices[calls])
    (capture,) = [name for _, _, name in parsed.instants if name.startswith("captured")]
    assert "nothing moved" in capture


def test_flows_link_all_parts_of_one_collective(tmp_path: Path) -> None:
    parsed = traced(unpacked("local/skipped_collective.fault", tmp_path), tmp_path)
    parts: dict[int, set[tuple[int, int]]] = defaultdict(set)
    for track, slices in parsed.slices.items():
        for _, _, _, flows, notes in slices:
            for flow in flows:
                parts[flow].add((track, notes["seq"]))
    assert len(parts) == 11
    for of_flow in parts.values():
        assert len({track for track, _ in of_flow}) == 4
        assert len({seq for _, seq in of_flow}) == 1


def test_the_trace_processor_answers(tmp_path: Path) -> None:
    """Questions of the documentation in SQL, where there is Perfetto's own program."""
    program = shutil.which("trace_processor_shell") or shutil.which("trace_processor")
    if program is None:
        pytest.skip("there is no trace_processor_shell: no package carries Perfetto's program")
    api = pytest.importorskip("perfetto.trace_processor")
    target = tmp_path / "hang.pftrace"
    job = unpacked("local/skipped_collective.fault", tmp_path)
    assert main(["trace", str(job), "-o", str(target)]) == 0
    config = api.TraceProcessorConfig(bin_path=program)
    with api.TraceProcessor(trace=str(target), config=config) as processor:
        late = list(
            processor.query(
                "select extract_arg(arg_set_id, 'debug.seq') as seq, max(ts) - min(ts) as lag_ns "
                "from slice where name like 'all_reduce%' "
                "and extract_arg(arg_set_id, 'debug.seq') is not null group by seq"
            )
        )
        assert len(late) > 3 and all(row.lag_ns >= 0 for row in late)
        (flows,) = processor.query("select count(*) as many from flow")
        assert flows.many > 0
        names = {row.name for row in processor.query("select name from process")}
        assert {f"rank {rank}" for rank in range(4)} <= {str(one)[:6] for one in names}


def test_hosts_have_counters(tmp_path: Path) -> None:
    parsed = traced(unpacked("local/slow_compute.fault", tmp_path), tmp_path)
    counters = {parsed.names[track]: values for track, values in parsed.values.items()}
    used = [values for name, values in counters.items() if name.startswith("Processor used")]
    assert len(used) >= 2 and all(len(values) > 1 for values in used)


def test_profiles_of_the_case_are_on_the_same_clock(tmp_path: Path) -> None:
    job = unpacked("local/skipped_collective.fault", tmp_path)
    before = traced(job, tmp_path)
    (group,) = before.track("group default_pg", "rank 0 ")
    begin = min(one[0] for one in before.slices[group])
    (rank,) = job.glob("hosts/*/ranks/0.0")
    (rank / "traces").mkdir()
    base = 1_700_000_000_000_000_000
    events = [
        {"ph": "M", "name": "thread_name", "pid": 7, "tid": 8, "args": {"name": "python"}},
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 7, "tid": 8,
         "ts": (begin - base) / 1000 + 5000, "dur": 200.0},
        {"ph": "X", "cat": "cpu_op", "name": "aten::mul", "pid": 7, "tid": 8,
         "ts": (begin - base) / 1000 + 5050, "dur": 50.0},
    ]  # fmt: skip
    content = {"baseTimeNanoseconds": base, "traceEvents": events}
    (rank / "traces" / "one.pt.trace.json").write_text(json.dumps(content))
    (tmp_path / "hang.pftrace").unlink()
    parsed = traced(job, tmp_path)
    (track,) = parsed.track("profile, python", "rank 0 ")
    inner, outer = parsed.slices[track]
    assert (outer[2], inner[2]) == ("aten::mm", "aten::mul")
    # Doubles of microseconds since 2023 are good to a quarter of one.
    assert abs(outer[0] - (begin + 5_000_000)) < 1000
    assert outer[0] <= inner[0] and inner[1] <= outer[1]


def test_no_profile_is_told_of_damaged_files() -> None:
    assert kineto_threads(b"{", 0) == []
    assert kineto_threads(b"[" * 100_000, 0) == []
    assert kineto_threads(b'{"traceEvents": 3}', 0) == []


def test_slices_nest_or_lie_apart() -> None:
    crossing = [Slice(0, 10, "a"), Slice(2, 4, "b"), Slice(5, 12, "c"), Slice(10, 11, "d")]
    nested = lanes_of(crossing, nest=True)
    assert [[one.name for one in lane.slices] for lane in nested] == [["a", "b", "d"], ["c"]]
    apart = lanes_of(crossing, nest=False)
    assert [[one.name for one in lane.slices] for lane in apart] == [["a", "d"], ["b", "c"]]
    told = [(at, one.name if one else None) for at, one in begins_and_ends(nested[0])]
    assert told == [(0, "a"), (2, "b"), (4, None), (10, None), (10, "d"), (11, None)]


def test_a_file_that_exists_stays_and_a_missing_extra_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = unpacked("local/skipped_collective.fault", tmp_path)
    target = tmp_path / "hang.pftrace"
    target.write_text("mine")
    assert main(["trace", str(job), "-o", str(target)]) == 64
    assert target.read_text() == "mine"
    monkeypatch.setitem(sys.modules, "perfetto.trace_builder.proto_builder", None)
    assert main(["trace", str(job), "-o", str(target), "--force"]) == 4
    assert "hanglab[trace]" in capsys.readouterr().err
    assert target.read_text() == "mine"
    assert {path.name for path in tmp_path.iterdir()} == {"hang.pftrace", "job"}


def test_dumps_alone_make_a_trace(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    assert main(["simulate", "--ranks", "8", "--fault", "skip", "-o", str(tmp_path / "d")]) == 0
    parsed = traced(tmp_path / "d", tmp_path)
    processes = [number for number, parent in parsed.parents.items() if not parent]
    assert {parsed.names[number] for number in processes} >= {f"rank {n}" for n in range(8)}
    assert any("(not ended)" in one[2] for of in parsed.slices.values() for one in of)


def test_faults_of_hanglabs_own_jobs_are_instants(tmp_path: Path) -> None:
    """In the folder of a job in a run the truth lies beside the Case."""
    job = tmp_path / "process_frozen" / "fault" / "0"
    job.mkdir(parents=True)
    unpacked("local/process_frozen.fault", job).rename(job / "case")
    before = traced(job, tmp_path)
    assert not [name for _, _, name in before.instants if name.startswith("fault")]
    at = min(begin for of in before.slices.values() for begin, *_ in of) + 1_000_000
    struck = {"kind": "freeze", "rank": 2, "when": "rank 2 reaches step 5", "struck_ns": at}
    (job / "truth.json").write_text(json.dumps({"faults": [struck]}))
    (tmp_path / "hang.pftrace").unlink()
    after = traced(job, tmp_path)
    ((track, when, _),) = [one for one in after.instants if one[2].startswith("fault: freeze")]
    assert after.names[track].startswith("rank 2") and when == at
