"""Branches of the user's code: what is recorded, and that nothing else of the code changes."""

from __future__ import annotations

import builtins
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

import pytest
from installed import needs_torch

from hanglab.recorder.case import branch_layout as layout
from hanglab.recorder.case.branch_trace import BranchTrace, NoBranches, read_branches
from hanglab.recorder.rank import hook_dir
from hanglab.recorder.rank.branches.instrumentation import TAKEN, instrumented
from hanglab.recorder.rank.branches.ring import BranchRing, record_with
from hanglab.recorder.rank.code_shapes import loops_of

PROGRAM = '''"""Every kind of branch."""
from __future__ import annotations
from contextlib import suppress

def every(n):
    """Docstring."""
    out = []
    for i in range(n):
        if i == 1:
            continue
        elif i == 2:
            out.append("two")
        else:
            out.append(i)
    else:
        out.append("all")
    while n:
        n -= 1
        if n == 1:
            break
    try:
        out.append(1 // n if n else 0)
        [][n]
    except ZeroDivisionError:
        pass
    except IndexError as error:
        out.append(type(error).__name__)
    with suppress(KeyError):
        {}[n]
    with suppress(KeyError):
        out.append("kept")
    match n:
        case 0:
            out.append("none")
        case 7 | 8:
            out.append("many")
    out.append([x for x in range(n) if x] or {x: -x for x in range(2)})
    out.append(n and out and None)
    return out

OUT = every(4)
'''


@pytest.fixture
def ring(tmp_path: Path):
    ring = BranchRing(tmp_path / "branches.bin")
    record_with(ring.taken)
    yield ring
    delattr(builtins, TAKEN)


def trace(tmp_path: Path) -> BranchTrace:
    return read_branches((tmp_path / "branches.bin").read_bytes())


def test_code_does_the_same_and_each_way_is_kept(ring: BranchRing, tmp_path: Path) -> None:
    plain: dict[str, object] = {}
    exec(compile(PROGRAM, "program.py", "exec"), plain)
    names: dict[str, object] = {}
    ring.name_file("program.py")
    code = instrumented(PROGRAM.encode(), "program.py", 0)
    exec(code, names)
    assert names["OUT"] == plain["OUT"]
    assert names["__doc__"] == plain["__doc__"] and names["every"].__doc__ == "Docstring."
    found = trace(tmp_path)
    assert found.whole and {one.place.file for one in found.branches} == {"program.py"}
    times = [one.at_ns for one in found.branches]
    assert times == sorted(times)
    ways = [(one.place.line, one.kind) for one in found.branches]
    again, left, taken, passed = (
        layout.LOOP_AGAIN, layout.LOOP_LEFT, layout.IF_TAKEN, layout.IF_PASSED,
    )  # fmt: skip
    assert ways[:9] == [
        (8, again), (9, passed), (11, passed),
        (8, again), (9, taken),
        (8, again), (9, passed), (11, taken),
        (8, again),
    ]  # fmt: skip
    assert (8, left) in ways and (17, left) not in ways
    rest = ways[ways.index((8, left)) + 1 :]
    assert rest == [
        (17, again), (19, passed), (17, again), (19, passed), (17, again), (19, taken),
        (22, layout.VALUE_TAKEN), (21, layout.HANDLERS[1]), (30, layout.BLOCK_ENDED),
        (32, layout.NO_CASE), (37, layout.OPERAND), (37, layout.ELEMENT), (37, layout.ELEMENT),
        (38, layout.OPERAND), (38, layout.OPERAND),
    ]  # fmt: skip


def test_loops_have_the_lines_that_they_had() -> None:
    def codes(code: CodeType) -> Iterator[CodeType]:
        yield code
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                yield from codes(constant)

    plain = codes(compile(PROGRAM, "program.py", "exec", dont_inherit=True))
    recorded = codes(instrumented(PROGRAM.encode(), "program.py", 0))
    loops = [
        [[one._replace(start=0) for one in loops_of(code)] for code in some]
        for some in (plain, recorded)
    ]
    assert loops[0] == loops[1] and any(loops[0])


def test_other_threads_and_what_cannot_be_told_are_left_out(
    ring: BranchRing, tmp_path: Path
) -> None:
    thread = threading.Thread(target=ring.taken, args=(layout.way(0, 1, 0, 1),))
    thread.start()
    thread.join()
    assert trace(tmp_path).branches == []
    # A file without a name, and a place that has no room in the number.
    ring.taken(layout.way(3, 1, 0, 1))
    ring.taken(layout.way(0, 1 << 25, 0, 1))
    assert trace(tmp_path).branches == []


def test_a_ring_that_came_round_says_so(ring: BranchRing, tmp_path: Path) -> None:
    ring.name_file("a.py")
    for line in range(1, layout.CAPACITY + 3):
        ring.taken(layout.way(0, line, 0, layout.IF_TAKEN))
    found = trace(tmp_path)
    assert not found.whole
    # The oldest may be half overwritten.
    lines = [one.place.line for one in found.branches]
    assert lines == list(range(4, layout.CAPACITY + 3))


def test_damaged_bytes_are_told() -> None:
    header = [layout.MAGIC, layout.VERSION, 5, 1 << 40, 0, 0, 0, 0]
    for data in (b"", bytes(64), b"".join(n.to_bytes(8, "little") for n in header)):
        with pytest.raises(NoBranches):
            read_branches(data)


SCRIPT = """
import multiprocessing, os, sys
import helper, left

def twice(x):
    return 2 * x

if __name__ == "__main__":
    for _ in range(2):
        helper.look(1)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        doubled = pool.map(twice, [1, 2])
    if os.fork() == 0:
        helper.look(0)
        os._exit(0)
    os.wait()
    print(repr((doubled, __name__, __spec__, __package__, __file__, sys.path[0], sys.argv)))
"""


@pytest.mark.parametrize("started", [["train.py"], ["./train.py"], ["-m", "train"]])
def test_a_script_runs_as_ever_and_its_modules_are_recorded(
    tmp_path: Path, started: list[str]
) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "helper.py").write_text("def look(x):\n    return 1 if x else 2\n")
    (tmp_path / "left.py").write_text("# hanglab: no branches\nif __name__:\n    pass\n")

    def run(**more: str) -> str:
        done = subprocess.run(
            [sys.executable, *started, "word"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(hook_dir()), **more},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    case = tmp_path / "case"
    rank = {"HANGLAB_CASE": str(case), "RANK": "0", "WORLD_SIZE": "1"}
    plain = run()
    recorded = run(HANGLAB_BRANCHES="1", **rank)
    if started[0] != "-m":
        assert recorded == plain
    (file,) = case.glob("hosts/*/ranks/0.*/branches.bin")
    found = read_branches(file.read_bytes())
    ways = [(Path(one.place.file).name, one.place.line, one.kind) for one in found.branches]
    value = ("helper.py", 2, layout.VALUE_TAKEN)
    assert ways == [
        ("train.py", 8, layout.IF_TAKEN),
        ("train.py", 9, layout.LOOP_AGAIN), value,
        ("train.py", 9, layout.LOOP_AGAIN), value,
        ("train.py", 9, layout.LOOP_LEFT),
        ("train.py", 13, layout.IF_PASSED),
    ]  # fmt: skip


COMPILED = """
import torch

@torch.compile(fullgraph=True, backend="eager")
def grow(x, n):
    if n > 2:
        x = x + 1
    for i in range(n):
        x = x * 2 if i else x
    return x

print(grow(torch.ones(2), 3).tolist(), grow(torch.ones(2), 1).tolist())
"""


@pytest.mark.slow
@needs_torch
def test_what_torch_compiles_has_no_calls_and_no_breaks(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(COMPILED)
    case = tmp_path / "case"
    rank = {"HANGLAB_CASE": str(case), "RANK": "0", "WORLD_SIZE": "1", "HANGLAB_BRANCHES": "1"}
    done = subprocess.run(
        [sys.executable, "train.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(hook_dir()), **rank},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout == "[8.0, 8.0] [1.0, 1.0]\n", done.stderr
    (file,) = case.glob("hosts/*/ranks/0.*/branches.bin")
    assert read_branches(file.read_bytes()).branches == []


def test_nothing_is_recorded_unless_it_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import sys\nif sys.argv:\n    print(sys.path_hooks[0])\n")
    case = tmp_path / "case"
    environment = {**os.environ, "PYTHONPATH": str(hook_dir()), "RANK": "0", "WORLD_SIZE": "1"}
    environment.pop("HANGLAB_BRANCHES", None)
    done = subprocess.run(
        [sys.executable, "train.py"],
        cwd=tmp_path,
        env={**environment, "HANGLAB_CASE": str(case)},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert "zipimport" in done.stdout
    assert not list(case.glob("**/branches.bin"))
