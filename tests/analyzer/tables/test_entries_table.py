"""The entries of all ranks side by side."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from hanglab.analyzer.flight_recorder import Loaded, load_folder, load_many
from hanglab.analyzer.matching.calls import Difference
from hanglab.analyzer.tables import entries_table, load_dumps, parse_numbers, parse_range
from hanglab.analyzer.tables.calls import GroupOfCalls
from hanglab.analyzer.tables.entries import Absent, CallCell, EntriesTable, Row
from hanglab.analyzer.tables.render import render_entries

sys.path.insert(0, str(Path(__file__).parents[1] / "dumps"))
from dump_builders import dump, entry, frames, torch_pickle, without

GLOO = Path(__file__).parents[2] / "data" / "dumps" / "gloo"


def loaded(*dumps: dict[str, Any]) -> Loaded:
    results = load_many([(torch_pickle(item), n, f"dump_{n}") for n, item in enumerate(dumps)])
    return Loaded([item for item in results if not isinstance(item, Exception)])


def words(row: Row, ranks: int = 0) -> list[str]:
    """Of the row's ranks, or of so many, all that has a part in it or not."""
    cells = [row.cells.get(rank, Absent.OTHERS) for rank in range(ranks)] or row.cells.values()
    return [cell.value if isinstance(cell, Absent) else cell.operation.op for cell in cells]


def printed(table: EntriesTable) -> str:
    console = Console(width=200, color_system=None)
    with console.capture() as capture:
        console.print(render_entries(table))
    return capture.get()


def test_healthy_ranks_stand_side_by_side() -> None:
    table = entries_table(loaded(dump(), dump()))
    assert table.ranks == [0, 1]
    assert [row.seq for row in table.rows] == [1, 2, 3]
    assert [words(row) for row in table.rows] == [["all_reduce"] * 2] * 3
    assert all(row.difference is None for row in table.rows)
    assert table.rows[0].group.label == "default_pg"
    assert table.rows[0].group.members == (0, 1)


def test_rings_that_begin_at_different_places_are_aligned() -> None:
    early = dump([entry(n) for n in range(4)])
    late = dump([entry(n) for n in range(2, 6)])
    table = entries_table(loaded(early, late))
    assert [words(row) for row in table.rows] == [
        ["all_reduce", "not recorded"],
        ["all_reduce", "not recorded"],
        ["all_reduce", "all_reduce"],
        ["all_reduce", "all_reduce"],
        ["not entered", "all_reduce"],
        ["not entered", "all_reduce"],
    ]


def test_a_mismatch_marks_the_minority() -> None:
    odd = entry(1, profiling_name="nccl:broadcast")
    table = entries_table(loaded(dump(), dump([entry(0), odd, entry(2)]), dump()))
    assert [row.difference for row in table.rows] == [None, Difference.OPERATION, None]
    flags = [isinstance(cell, CallCell) and cell.deviates for cell in table.rows[1].cells.values()]
    assert flags == [False, True, False]
    text = printed(table)
    assert "! operation differs" in text
    assert "! broadcast" in text


def test_sizes_and_dtypes_are_compared_and_halves_are_both_marked() -> None:
    sizes = dump([entry(0, input_sizes=[[9]], output_sizes=[[9]]), entry(1), entry(2)])
    dtypes = dump([entry(0, input_dtypes=["Long"], output_dtypes=["Long"]), entry(1), entry(2)])
    for other, difference in ((sizes, Difference.SIZE), (dtypes, Difference.DTYPE)):
        row = entries_table(loaded(dump(), other)).rows[0]
        assert row.difference == difference
        assert all(isinstance(cell, CallCell) and cell.deviates for cell in row.cells.values())


def test_healthy_shapes_are_no_mismatch() -> None:
    gather = [
        dump([entry(0, profiling_name="nccl:gather", output_sizes=[[4, 2]] * 2)]),
        dump([entry(0, profiling_name="nccl:gather", output_sizes=[])]),
    ]
    uneven = [
        dump([entry(0, profiling_name="nccl:all_to_all", input_sizes=[[n]], output_sizes=[[3]])])
        for n in (1, 2)
    ]
    unknown = [dump([entry(0)]), dump([without(entry(0), "input_sizes", "output_sizes")])]
    for dumps in (gather, uneven, unknown):
        assert [row.difference for row in entries_table(loaded(*dumps)).rows] == [None]


def test_the_cap_on_mismatches() -> None:
    good = dump([entry(n) for n in range(20)])
    bad = dump([entry(n, profiling_name="nccl:barrier") for n in range(20)])
    table = entries_table(loaded(good, bad), mismatch_cap=3)
    assert [row.seq for row in table.rows] == [1, 2, 3]
    assert table.left_out == 17
    assert "17 more rows" in printed(table)
    assert entries_table(loaded(good, bad), mismatch_cap=None).left_out == 0


def test_filters() -> None:
    rows = [
        entry(0),
        entry(1, pg_id=1, process_group=("7", "tp"), collective_seq_id=1),
        entry(2, collective_seq_id=2, state="scheduled", retired=False),
    ]
    data = loaded(dump(rows, pg_status={}), dump(rows, pg_status={}))
    assert len(entries_table(data).rows) == 3
    assert [row.group.name for row in entries_table(data, groups=["tp"]).rows] == ["7"]
    assert [row.group.name for row in entries_table(data, groups=["0"]).rows] == ["0", "0"]
    assert [row.seq for row in entries_table(data, seqs=(2, 9)).rows] == [2]
    assert entries_table(data, ranks=[1]).ranks == [1]
    unfinished = entries_table(data, only_unfinished=True)
    assert [row.seq for row in unfinished.rows] == [2]
    assert "scheduled *" in printed(unfinished)
    assert "* unfinished" in printed(unfinished)
    assert "unfinished" not in printed(entries_table(data, seqs=(1, 1)))
    assert "no entries" in printed(entries_table(data, groups=["none"]))


def test_stacks_are_numbered_and_printed_once() -> None:
    rows = [entry(n, frames=frames(10 + n % 2, 99)) for n in range(4)]
    table = entries_table(loaded(dump(rows), dump(rows)), stacks=True)
    assert len(table.stacks) == 2
    text = printed(table)
    assert "train.py:10 in train" in text
    assert text.count("train.py:11 in train") == 1
    assert entries_table(loaded(dump(rows))).stacks == []


def test_sends_and_receives_stand_alone() -> None:
    p2p = {"is_p2p": True, "collective_seq_id": 1}
    send = entry(1, profiling_name="nccl:send 0->1", **p2p)
    recv = entry(1, profiling_name="nccl:recv 1<-0", **p2p)
    table = entries_table(loaded(dump([entry(0), send]), dump([entry(0), recv])))
    seen = [words(row, 2) for row in table.rows]
    assert seen == [["all_reduce"] * 2, ["send", ""], ["", "recv"]]
    assert [row.seq for row in table.rows] == [1, None, None]
    assert "send 0->1" in printed(table)


def test_coalesced_operations_share_a_number() -> None:
    rows = [
        entry(0, profiling_name="nccl:all_gather", collective_seq_id=1),
        entry(1, profiling_name="nccl:broadcast", collective_seq_id=1),
        entry(2, profiling_name="nccl:coalesced", collective_seq_id=1),
    ]
    table = entries_table(loaded(dump(rows), dump(rows)))
    assert [words(row)[0] for row in table.rows] == ["all_gather", "broadcast", "coalesced"]
    assert all(row.difference is None for row in table.rows)


def test_members_of_a_batch_that_is_through_are_finished() -> None:
    """Their own state stays at scheduled for ever: the end tells."""
    batch = {"collective_seq_id": 1, "p2p_seq_id": 1, "is_p2p": True}
    member = {**batch, "state": "scheduled", "retired": False}

    def rows(**end: Any) -> list[dict[str, Any]]:
        return [
            entry(0),
            entry(1, profiling_name="nccl:send 0->1", **member),
            entry(2, profiling_name="nccl:recv 0<-1", **member),
            entry(3, profiling_name="nccl:coalesced", **batch, **end),
        ]

    through = loaded(dump(rows()), dump(rows()))
    assert entries_table(through, only_unfinished=True).rows == []
    stuck = loaded(dump(rows(state="scheduled", retired=False)))
    assert len(entries_table(stuck, only_unfinished=True).rows) == 3


def test_clocks_that_differ_do_not_disturb_the_order() -> None:
    fast = [entry(n, time_created_ns=10**18 + n) for n in range(4)]
    slow = [entry(n, time_created_ns=10**17 + n) for n in range(2, 4)]
    table = entries_table(loaded(dump(fast), dump(slow)))
    assert [row.seq for row in table.rows] == [1, 2, 3, 4]


def test_split_groups_that_share_a_name_are_kept_apart() -> None:
    def member(ranks: str) -> dict[str, Any]:
        return dump([entry(0)], pg_config={"0": {"name": "0", "desc": "tp", "ranks": ranks}})

    table = entries_table(
        loaded(member("[0, 1]"), member("[0, 1]"), member("[2, 3]"), member("[2, 3]"))
    )
    assert [words(row, 4) for row in table.rows] == [
        ["all_reduce", "all_reduce", "", ""],
        ["", "", "all_reduce", "all_reduce"],
    ]
    assert "tp (0-1)" in printed(table)
    assert "tp (2-3)" in printed(table)


def test_what_torch_writes_on_gloo() -> None:
    table = entries_table(load_folder(GLOO / "stacks"), stacks=True)
    assert table.ranks == [0, 1, 2, 3]
    assert len(table.rows) == 9 + 2 + 2
    assert all(row.difference is None for row in table.rows)
    cells = [
        cell for row in table.rows for cell in row.cells.values() if isinstance(cell, CallCell)
    ]
    assert len(cells) == 44
    assert all(cell.finished for cell in cells)
    assert "make_gloo.py" in printed(table)


def test_on_gloo_numbers_of_the_last_operation_count_messages() -> None:
    """By them rank 1, which has exchanged messages, would be past what it has not entered."""
    calls = [entry(number, profiling_name="gloo:all_reduce") for number in range(3)]
    status = {"0": {"last_enqueued_collective": 9, "last_completed_collective": 9}}
    table = entries_table(loaded(dump(calls), dump(calls[:2], pg_status=status)))
    assert [words(row) for row in table.rows][-1] == ["all_reduce", "not entered"]


def test_on_nccl_numbers_of_the_last_operation_may_be_of_a_message() -> None:
    """Rank 1 has sent nine times since, and not entered the third collective."""
    send = {"profiling_name": "nccl:send 1->0", "is_p2p": True, "collective_seq_id": 2}
    calls = [entry(0), entry(1), *(entry(2 + n, p2p_seq_id=1 + n, **send) for n in range(9))]
    status = {"0": {"last_enqueued_collective": 9, "last_completed_collective": 9}}
    table = entries_table(loaded(dump(), dump(calls, pg_status=status)))
    told = [words(row) for row in table.rows if row.seq == 3]
    assert told == [["all_reduce", "not entered"]]


def test_files_of_another_job_are_not_mixed_in(tmp_path: Path) -> None:
    """What a verdict sets aside stands in no table of the same folder, either."""
    actors = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"}}
    hour = 3_600_000_000_000
    for rank in range(3):
        (tmp_path / f"actor_rank_{rank}").write_bytes(torch_pickle(dump(pg_config=actors)))
    for rank in range(2):
        later = [entry(n, time_created_ns=1_700_000_000_000_000_000 + hour + n) for n in range(2)]
        (tmp_path / f"rollout_rank_{rank}").write_bytes(torch_pickle(dump(later)))
    table = entries_table(load_dumps(tmp_path))
    assert [words(row) for row in table.rows] == [["all_reduce"] * 3] * 3
    assert sorted(one.file for one in table.unusable) == ["rollout_rank_0", "rollout_rank_1"]
    chosen = entries_table(load_dumps(tmp_path, ranks={1}))
    assert chosen.ranks == [1]


def test_a_rank_without_entries_has_an_empty_column() -> None:
    table = entries_table(loaded(dump(), without(dump(), "entries")))
    assert [words(row) for row in table.rows] == [["all_reduce", "not recorded"]] * 3
    assert entries_table(Loaded()).rows == []


def test_unusable_files_are_named_below(tmp_path: Path) -> None:
    (tmp_path / "dump_0").write_bytes(torch_pickle(dump()))
    (tmp_path / "dump_1").write_bytes(b"")
    assert "not used: dump_1: empty" in printed(entries_table(load_dumps(tmp_path)))
    assert load_dumps(tmp_path, ranks={1}).dumps == []


@pytest.mark.parametrize(
    ("text", "numbers"), [("0", {0}), ("0,3-5", {0, 3, 4, 5}), (" 2 - 3 , 9", {2, 3, 9})]
)
def test_numbers(text: str, numbers: set[int]) -> None:
    assert parse_numbers(text) == numbers


@pytest.mark.parametrize("text", ["", "a", "3-", "5-3", "0-99999999", "1,,2", "-1"])
def test_numbers_that_are_none(text: str) -> None:
    with pytest.raises(ValueError):
        parse_numbers(text)


def test_range() -> None:
    assert parse_range("4-7") == (4, 7)
    assert parse_range("4") == (4, 4)


def test_same_as_torchfrtrace_where_it_works(tmp_path: Path) -> None:
    """Healthy dumps of one group: both print the same operations, sizes and states by rank."""
    pytest.importorskip("torch")
    folder = tmp_path / "dumps"
    folder.mkdir()
    for rank in range(2):
        rows = [
            entry(
                n, profiling_name=f"nccl:{op}", input_sizes=[[n + 1, 2]], output_sizes=[[n + 1, 2]]
            )
            for n, op in enumerate(["all_reduce", "broadcast", "reduce", "all_reduce"])
        ]
        (folder / f"nccl_trace_rank_{rank}").write_bytes(torch_pickle(dump(rows)))
    # It prints through a package that need not be installed here.
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "tabulate.py").write_text(
        "def tabulate(rows, headers=()):\n    return '\\n'.join(map(str, rows))\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", "-j", str(folder)],
        capture_output=True,
        text=True,
        timeout=280,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "path")},
    )
    cell = re.compile(r"(\w+)\(input_sizes=(\[\[.*?\]\]), state=(\w+)\)")
    theirs = [cell.findall(line) for line in (done.stdout + done.stderr).splitlines()]
    theirs = [row for row in theirs if row]
    if not theirs:
        pytest.skip(f"torchfrtrace printed nothing: {done.stderr[-300:]}")
    ours = [
        [
            (
                cell.operation.op,
                str([list(shape) for shape in cell.arguments.input_sizes]),
                cell.state.name.lower(),
            )
            for cell in row.cells.values()
            if isinstance(cell, CallCell)
        ]
        for row in entries_table(load_folder(folder)).rows
    ]
    assert ours == theirs


def in_group(ranks: str, rows: list[dict[str, Any]] | None = None, **top: Any) -> dict[str, Any]:
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": ranks}}
    return dump(rows, pg_config=config, **top)


def test_what_is_not_recorded_and_what_is_not_known() -> None:
    """Rank 1's ring begins later, rank 2's file breaks off, rank 3's dump tells of nothing."""
    rows = [entry(n) for n in range(4)]
    everybody = "[0, 1, 2, 3]"
    blank = without(dump(pg_config={}, pg_status={}), "entries")
    data = loaded(
        in_group(everybody, rows),
        in_group(everybody, rows[2:]),
        in_group(everybody, rows[:2]),
        blank,
    )
    data.dumps[2].damage = "ends too early"
    data.dumps[2].status.clear()
    table = entries_table(data)
    assert [words(row)[1:] for row in table.rows] == [
        ["not recorded", "all_reduce", "unknown"],
        ["not recorded", "all_reduce", "unknown"],
        ["all_reduce", "unknown", "unknown"],
        ["all_reduce", "unknown", "unknown"],
    ]
    text = printed(table)
    assert "not recorded: entered, but its dump no longer has it" in text
    assert "unknown: its dump does not tell whether it entered" in text


def test_on_gloo_a_rank_without_entries_of_a_group_may_belong_to_it() -> None:
    """Nobody lists members: only a ring that is whole shows that a rank never used a group."""
    rows = [entry(0), entry(1, pg_id=1, process_group=("7", "tp"), collective_seq_id=1)]
    whole, wrapped = [entry(0)], [entry(n) for n in range(5, 7)]
    table = entries_table(
        loaded(*(dump(mine, pg_config={}, pg_status={}) for mine in (rows, whole, wrapped)))
    )
    (row,) = (row for row in table.rows if row.group.name == "7")
    assert words(row, 3) == ["all_reduce", "", "unknown"]


def test_members_without_a_dump_have_a_column_where_they_are_asked_for() -> None:
    data = loaded(in_group("[0, 1, 2]"), in_group("[0, 1, 2]"))
    table = entries_table(data)
    assert table.ranks == [0, 1]
    assert table.notes == ["There is no dump of rank 2, which the groups name as members."]
    asked = entries_table(data, ranks=[1, 2, 9])
    assert asked.ranks == [1, 2]
    assert [words(row) for row in asked.rows] == [["all_reduce", "no dump"]] * 3
    assert asked.notes == ["There is no dump of ranks 2, 9."]
    assert "There is no dump of ranks 2, 9." in printed(asked)


def test_what_was_asked_for_and_is_not_there_is_said() -> None:
    rows = [entry(0), entry(1, pg_id=1, process_group=("7", "tp"), collective_seq_id=4)]
    data = loaded(dump(rows, pg_status={}), dump(rows, pg_status={}))
    assert entries_table(data, ranks=[0], groups=["tp"], seqs=(4, 9)).notes == []
    assert entries_table(data, groups=["dp", "tp"]).notes == [
        "No entry is of a group 'dp'; the groups that have entries: default_pg, tp."
    ]
    assert entries_table(data, seqs=(5, 9)).notes == [
        "No recorded call has number 5-9; those recorded: default_pg 1, tp 4."
    ]
    assert entries_table(data, groups=["tp"], seqs=(1, 1)).notes == [
        "No recorded call has number 1; those recorded: tp 4."
    ]
    assert entries_table(data, ranks=[7]).notes == ["There is no dump of rank 7."]
    assert entries_table(data, only_unfinished=True).notes == [
        "No call that was asked for is unfinished."
    ]


def test_stacks_that_were_not_dumped_are_said_to_be_missing() -> None:
    bare = [without(entry(n), "frames") for n in range(2)]
    assert entries_table(loaded(dump(bare), dump(bare)), stacks=True).notes == [
        "The dumps hold no stacks: they were taken without."
    ]
    assert entries_table(loaded(dump(bare), dump(bare))).notes == []
    assert entries_table(loaded(dump(), dump()), stacks=True).notes == []


def test_dumps_without_entries_are_said_to_have_none() -> None:
    assert entries_table(loaded(without(dump(), "entries"))).notes == [
        "The dumps hold no entries: nothing was recorded, or only counts were dumped."
    ]


def test_the_command_says_what_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "dump_0").write_bytes(torch_pickle(dump()))
    done = subprocess.run(
        [str(Path(sys.executable).with_name("hanglab")), "entries", str(tmp_path), "--seq", "70"],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0
    assert "No recorded call has number 70" in done.stdout


def test_of_many_ranks_those_with_equal_calls_are_one_line() -> None:
    odd = dump([entry(0), entry(1, profiling_name="nccl:broadcast"), entry(2)])
    table = entries_table(loaded(*[dump()] * 12, odd, *[dump()] * 7))
    lines = printed(table).splitlines()
    cells = [[part.strip() for part in line.split("│")] for line in lines]
    second = next(place for place, line in enumerate(cells) if line[1:2] == ["2"])
    assert cells[second][2] == "12" and cells[second][3].startswith("! broadcast")
    alike = next(line for line in cells[second + 1 :] if line[2])
    assert alike[2] == "0-11, 13-19" and alike[3].startswith("all_reduce")
    assert sum(bool(line[2]) for line in cells if len(line) == 4) == 4
    assert max(map(len, lines)) < 120


@pytest.mark.parametrize(("description", "label"), [("", "7"), ("undefined", "7"), ("tp", "tp")])
def test_a_group_without_a_description_is_told_by_its_name(description: str, label: str) -> None:
    """torch gives "undefined" to those that nobody described: of two of them it would be both."""
    assert GroupOfCalls("7", description, (0, 1)).label == label
