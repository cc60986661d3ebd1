"""The texts of scripts and scenarios: torch takes every call, whatever its arguments."""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from installed import needs_torch
from random_programs import random_program

from hanglab.analyzer.program import Action, Program, ProgramGroup
from hanglab.analyzer.program.program import COLLECTIVES, ROOTED
from hanglab.analyzer.program.reduced_program import (
    keep_operations,
    keep_ranks,
    operations_of,
    whole,
)
from hanglab.analyzer.recorded_endings import EndingKind, RecordedEnding
from hanglab.analyzer.source_positions import SourcePosition
from hanglab.analyzer.verdict import Cause, CollectiveRef, Location, Status, Verdict
from hanglab.harness.minimisation.artefacts import scenario_text, script_text
from hanglab.harness.minimisation.endings import Ending, RankEnding, endings_of
from hanglab.harness.minimisation.reproduction import Reproduction
from hanglab.harness.scenarios.discovery import select


def reproduction(
    program: Program, *endings: RankEnding, sound: Program | None = None
) -> Reproduction:
    return Reproduction(
        reduced=whole(program),
        endings=endings or (RankEnding.ITSELF,) * program.world_size,
        whole_ranks=9,
        whole_operations=1234,
        cause=Cause.MISSING_RANK,
        blamed=frozenset({1}),
        sound=sound,
    )


def everything() -> Program:
    """Two ranks that make every call in every way, and end."""
    groups = (ProgramGroup("0", (0, 1), "default_pg"), ProgramGroup("1", (1, 0), 'a "pair"'))
    collectives = [
        Action(
            op,
            group,
            site=number,
            numel=numel,
            dtype=dtype,
            root=root if op in ROOTED else None,
            overlap=overlap,
            reduction="max" if numel == 3 else "",
        )
        for number, op in enumerate(COLLECTIVES, start=1)
        for group, numel, dtype, root, overlap in (
            (0, 2, "Float", 0, False),
            (1, 3, "Long", 1, True),
        )
    ]
    uneven = [
        Action("all_to_all", 0, site=20, numel=2, splits=splits)
        for splits in (((1, 3), (1, 2)), ((2, 1), (3, 1)))
    ]
    sends = [Action("send", 0, site=21, peer=1), Action("send", 0, site=22, peer=1, overlap=True)]
    takes = [Action("recv", 0, site=23, peer=0), Action("recv", 0, site=24, peer=None)]
    return Program(groups, ((*collectives, uneven[0], *sends), (*collectives, uneven[1], *takes)))


@needs_torch
@pytest.mark.long
def test_torch_takes_every_call(tmp_path: Path) -> None:
    script = tmp_path / "every.py"
    script.write_text(script_text(reproduction(everything()), script.name))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    ended = subprocess.run(
        [*torchrun, str(script)], capture_output=True, text=True, timeout=280, check=False
    )
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("seed", range(8))
def test_each_line_of_the_job_that_calls_has_one_of_its_own(seed: int) -> None:
    program = random_program(Random(seed), world=4, length=6, repeats=2)
    text = script_text(reproduction(program), "repro.py")
    functions = [one for one in ast.parse(text).body if isinstance(one, ast.FunctionDef)]
    lines = {(action.site, action.op) for mine in program.actions for action in mine}
    assert len(functions) == len(lines)
    (table,) = [
        one.value
        for one in ast.parse(text).body
        if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == "CALLS"
    ]
    assert isinstance(table, ast.List)
    rows = [row.elts for row in table.elts if isinstance(row, ast.List)]
    assert [len(row) for row in rows] == [len(mine) for mine in program.actions]


def test_a_script_for_a_device_waits_for_it_before_a_rank_ends() -> None:
    call, message = Action("all_reduce", 0, site=3), Action("send", 1, site=4, peer=1)
    groups = (ProgramGroup("0", (0, 1), "default_pg"), ProgramGroup("1", (0, 1), "pair"))
    program = Program(groups, ((call, message), (call,)))
    told = replace(
        reproduction(program, RankEnding.ITSELF, RankEnding.STANDS_STILL), backend="nccl-emulated"
    )
    text = script_text(told, "repro.py")
    lines = text.splitlines()
    compile(text, "repro.py", "exec")
    assert 'dist.init_process_group("nccl")' in lines
    assert "    dist.all_reduce(torch.zeros(1, device=device))" in lines
    # Communicators are there before the calls, and devices are done before ranks end.
    assert "for group in [dist.group.WORLD, group_2]:" in lines
    assert (
        "    [(all_reduce_1,), (torch.cuda.synchronize,), (stand_still,)],  # rank 1 of the job"
        in lines
    )
    assert lines.index("while not done.query():") < lines.index("dist.destroy_process_group()")
    assert "import time" in lines
    assert "hanglab run repro.py --world-size 2 --backend nccl-emulated" in text
    assert "NCCL's timeout of 10 minutes" in text and "gloo" not in text
    alone = script_text(replace(told, backend="nccl"), "repro.py")
    assert "hanglab run" not in alone and "torchrun --nproc-per-node 2 repro.py  # 2 GPUs" in alone


def test_last_calls_are_made_where_the_ranks_of_the_job_stood() -> None:
    first, last = Action("all_reduce", 0, site=3), Action("broadcast", 0, site=4, root=0)
    program = Program(
        (ProgramGroup("0", (0, 1, 2), "default_pg"),), ((first, last), (first, first), (last,))
    )
    later = replace(
        reproduction(program), positions={0: SourcePosition(), 1: SourcePosition(line=1)}
    )
    text = script_text(later, "repro.py")
    compile(text, "repro.py", "exec")
    # Who is at no line of its own makes all of its calls in the loop.
    assert "    [(broadcast_2,)],  # rank 2 of the job" in text
    assert text.count("    [(all_reduce_1,)],  #") == 2
    ends = "if rank in [0]:\n    broadcast_2()\nif rank in [1]:\n    all_reduce_1()\n"
    assert f"for call, *arguments in CALLS[rank]:\n    call(*arguments)\n{ends}" in text
    assert "rank 1 waits in all_reduce, at a later line than that of peers" in text


def test_iterations_are_numbered_and_who_left_the_loop_was_in_it() -> None:
    last, behind = Action("all_reduce", 0, site=3), Action("all_gather", 0, site=4)
    program = Program(
        (ProgramGroup("0", (0, 1, 2), "default_pg"),), ((last, last), (behind,), (last, last))
    )
    positions = {0: SourcePosition(step=1), 1: SourcePosition(behind=True), 2: SourcePosition(1)}
    text = script_text(replace(reproduction(program), positions=positions), "repro.py")
    assert text.count("    [(0, all_reduce_1), (1, all_reduce_1)],") == 2
    assert "    [(0, go_on)],  # rank 1 of the job" in text and "def go_on():" in text
    assert "for turn, call, *arguments in CALLS[rank]:" in text
    assert text.index("call(*arguments)") < text.index("if rank in [1]:\n    all_gather_2()")
    verdict = Verdict(status=Status.HUNG, cause=Cause.UNEVEN_INPUTS, culprits=[1])
    told = replace(reproduction(program, sound=program), positions=positions)
    scenario = scenario_text(told, "repro", verdict, text)
    compile(scenario, "repro_scenario.py", "exec")
    assert "(calls if job.faulty else sound)[rank]:  # FAULT" in scenario
    # The control's calls are of one iteration, and none is behind the loop.
    assert "[(0, all_reduce_1), (0, all_reduce_1)],  # rank 2" in scenario
    assert "if job.faulty and rank in [1]:" in scenario


def test_a_further_thread_makes_its_calls_and_one_line_makes_both_kinds() -> None:
    waits, goes_on = Action("all_reduce", 0, site=3), Action("all_reduce", 0, site=3, overlap=True)
    other = Action("all_gather", 0, site=4, overlap=True, thread=1)
    program = Program(
        (ProgramGroup("0", (0, 1), "default_pg"),), ((other, waits), (goes_on, other))
    )
    text = script_text(reproduction(program), "repro.py")
    assert "    [(in_thread, all_gather_2), (all_reduce_1, True)],  # rank 0" in text
    assert "import threading" in text and "def in_thread(call, *arguments):" in text
    assert text.count("dist.all_reduce(torch.zeros(1), async_op=not wait)") == 1
    compile(text, "repro.py", "exec")


def test_ranks_make_groups_of_one_name_with_the_members_that_they_had() -> None:
    call = Action("broadcast", 2, site=3, root=0)
    groups = (
        ProgramGroup("0", (0, 1, 2), "default_pg"),
        ProgramGroup("2", (0, 2), "update", makers=(0, 2)),
        ProgramGroup("1", (0, 1), "update", makers=(0,)),
        ProgramGroup("1", (1, 2), "update", makers=(1,)),
    )
    program = Program(groups, ((call,), (replace(call, group=3),), ()))
    text = script_text(reproduction(program), "repro.py")
    compile(text, "repro.py", "exec")
    first = 'group_3 = dist.new_group([1, 2] if rank in [1] else [0, 1], group_desc="update")\n'
    # Their names count groups, so they are made in the order of these.
    assert first + 'group_2 = dist.new_group([0, 2], group_desc="update")' in text
    assert text.count("dist.new_group(") == 2 and "group=group_3)" in text
    # A group that somebody made stays, as it counts; without its makers it does not.
    assert keep_operations(whole(program), operations_of(program)[:1]).program.groups[0].makers
    kept = keep_ranks(whole(program), (0, 2)).program.groups
    assert [(one.name, one.members, one.makers) for one in kept] == [
        ("2", (0, 1), (0, 1)),
        ("1", (0,), (0,)),
    ]


def test_texts_of_dumps_end_no_string() -> None:
    text = script_text(reproduction(everything()), "repro.py")
    assert 'group_desc="a \\"pair\\""' in text
    compile(text, "repro.py", "exec")


def test_a_scenario_is_found_with_its_marks_and_expectation(tmp_path: Path) -> None:
    call = Action("all_reduce", 0, site=3)
    groups = (ProgramGroup("0", (0, 1), "default_pg"),)
    hung, sound = Program(groups, ((call,), ())), Program(groups, ((call,), (call,)))
    told = reproduction(hung, RankEnding.ITSELF, RankEnding.BEHIND_LOOP, sound=sound)
    script = script_text(told, "repro.py")
    line = script.splitlines().index("        time.sleep(1)") + 1
    verdict = Verdict(
        status=Status.HUNG,
        cause=Cause.UNEVEN_INPUTS,
        culprits=[1],
        collective=CollectiveRef("default_pg", "0", [0, 1], 1, "all_reduce"),
        location=Location("repro.py", line, "stand_still", 1),
    )
    path = tmp_path / "repro_scenario.py"
    path.write_text(scenario_text(told, "repro", verdict, script))
    (found,) = select([str(path)]).scenarios
    assert found.name == "repro" and found.world_size == 2 and found.world_sizes == (2,)
    assert found.expect is not None and found.expect.culprits == {1}
    (seen,) = found.seen_lines
    assert path.read_text().splitlines()[seen - 1].strip() == "time.sleep(1)  # SEEN"
    assert len(found.fault_lines) == 1
    without = scenario_text(reproduction(hung), "repro", verdict, script)
    assert "No control" in without and "job.faulty" not in without


def test_ends_follow_from_the_cause() -> None:
    call = Action("all_reduce", 0, site=3)
    groups = (ProgramGroup("0", (0, 1, 2), "default_pg"),)
    reduced = whole(Program(groups, ((call,), (), ())))

    def endings(
        cause: Cause, ended: set[int], **recorded: RecordedEnding
    ) -> list[tuple[Ending, ...]]:
        by_rank = {int(name[1:]): ending for name, ending in recorded.items()}
        return list(endings_of(reduced, cause, {1}, ended, by_rank))

    still = RankEnding.STANDS_STILL
    assert endings(Cause.MISSING_RANK, set()) == [(RankEnding.ITSELF, still, still)]
    # Who came to its end by itself does so again.
    assert endings(Cause.SIZE_MISMATCH, {2}) == [(RankEnding.ITSELF, still, RankEnding.ITSELF)]
    assert endings(Cause.UNEVEN_INPUTS, set())[0] == (
        RankEnding.ITSELF,
        RankEnding.BEHIND_LOOP,
        still,
    )
    assert endings(Cause.EXCEPTION, {1}) == [(RankEnding.ITSELF, RankEnding.RAISES, still)]
    # What evidence says of a rank comes first, whatever the cause; one in a call waits there.
    stopped = RecordedEnding(EndingKind.STOPPED)
    told = endings(Cause.MISSING_RANK, set(), r1=stopped, r0=stopped)
    assert told == [(RankEnding.ITSELF, stopped, still), (RankEnding.ITSELF, still, still)]
    left = endings(Cause.MISSING_RANK, set(), r2=RecordedEnding(EndingKind.LEFT_LOOP))
    assert left[0] == (RankEnding.ITSELF, still, RankEnding.BEHIND_LOOP)
