"""Mutants keep the lines of their script, whatever stands on them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from mutation_targets import make_target

from hanglab.harness.mutation.mutant import choose_mutations
from hanglab.harness.mutation.operator import own_operators
from hanglab.harness.mutation.source import Script, SourceError, mark_line

SOURCE = '''\
"""Trains
over two lines."""
from __future__ import annotations

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader


def step(model, batch, group, rank):
    loss = model(batch).sum()  # forward
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad, op=dist.ReduceOp.SUM, group=group)
        parameter.grad /= 4
    if rank < 3:
        dist.send(loss, dst=rank + 1, tag=3)
    if rank > 0:
        dist.recv(
            loss,
            rank - 1,
        )
    dist.broadcast(loss, src=0); text = """a
string over lines"""
    dist.barrier()
    dist.barrier(group)


def main():
    group = dist.new_group([0, 1, 2])
    loader = DataLoader(torch.ones(8), batch_size=2)
    for batch in loader:
        step(torch.nn.Linear(2, 2), batch, group, dist.get_rank())
        dist.all_to_all_single(batch, batch, [1, 1], [1, 1])


if __name__ == "__main__":
    main()
'''


def test_every_mutant_keeps_the_lines_of_all_that_it_does_not_change(tmp_path: Path) -> None:
    target = make_target(SOURCE, tmp_path)
    chosen = choose_mutations(target, own_operators(), len(own_operators()))
    changed_by: dict[str, int] = {}
    before = SOURCE.splitlines()
    for operator, mutation in chosen:
        code = target.script.rewrite(mutation.changes, mutation.statement.line)
        after = code.splitlines()
        assert len(after) == len(before), operator.name
        ast.parse(code)
        differing = {
            n for n, (old, new) in enumerate(zip(before, after, strict=True), 1) if old != new
        }
        # The prelude stands behind the last import of __future__.
        assert 3 in differing and "mutation_point" in after[2]
        assert mutation.statement.line in differing
        assert len(differing) <= 18, (operator.name, differing)
        line = after[mutation.statement.line - 1]
        in_text = before[mutation.statement.line - 1].endswith('"""a')
        assert line.count("# FAULT") == (0 if in_text else 1), (operator.name, line)
        changed_by[operator.name] = changed_by.get(operator.name, 0) + 1
    # Every operator finds a place in a script that has all of it.
    assert set(changed_by) == {operator.name for operator in own_operators()}


def test_a_mutant_without_a_change_runs_as_the_script_does(tmp_path: Path) -> None:
    target = make_target("import os\n\nprint(__file__)\n", tmp_path)
    code = target.script.rewrite({}, None)
    assert code == (
        "import os; import mutation_point, mutation_values; __file__ = mutation_point.ORIGINAL\n\n"
        "print(__file__)\n"
    )


def test_limits_take_one_mutant_of_each_operator_in_turns(tmp_path: Path) -> None:
    target = make_target(SOURCE, tmp_path)
    operators = own_operators()
    first = choose_mutations(target, operators, len(operators))
    assert [operator.name for operator, _ in first] == [operator.name for operator in operators]


@pytest.mark.parametrize(
    ("line", "marked"),
    [(1, True), (2, False), (3, True), (4, False), (5, True)],
)
def test_a_mark_is_a_comment_or_is_not_there(line: int, marked: bool) -> None:
    code = 'a = 1\nb = """x\ny"""\nc = 1 + \\\n    2\n'
    changed = mark_line(code, line, "SEEN")
    assert ast.dump(ast.parse(changed)) == ast.dump(ast.parse(code))
    assert ("# SEEN" in changed) is marked


@pytest.mark.parametrize("source", ["def broken(:\n", "x = 1\n  y = 2\n"])
def test_a_script_that_cannot_be_parsed_is_named_with_its_line(source: str, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(source)
    with pytest.raises(SourceError, match=r"train\.py:[12] is no Python"):
        Script(path)


def test_a_script_without_a_place_for_the_import_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("def main():\n    pass\n")
    with pytest.raises(SourceError, match="no simple statement"):
        Script(path)
