"""Operators by name, by file and by other distributions; places that they find or leave alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from mutation_targets import make_target

from hanglab.analyzer.verdict import Cause
from hanglab.harness.mutation.operator import (
    Mutation,
    OperatorError,
    all_operators,
    choose_operators,
    own_operators,
)

PROGRAMS = Path(__file__).parent / "programs"


def mutations(name: str, source: str, folder: Path) -> list[tuple[Mutation, str]]:
    """Mutations of one operator, each with its line in the mutant."""
    target = make_target(source, folder)
    found = list(all_operators()[name].mutate(target))
    lines = [
        target.script.rewrite(one.changes, one.statement.line).splitlines()[one.statement.line - 1]
        for one in found
    ]
    return list(zip(found, lines, strict=True))


def test_another_distribution_brings_operators(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "others.py").write_text((PROGRAMS / "wrong_operators.py").read_text())
    described = tmp_path / "others-1.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: others\nVersion: 1.0\n")
    (described / "entry_points.txt").write_text(
        "[hanglab.mutation_operators]\nothers = others:OPERATORS\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert [one.name for one in choose_operators("harmless")] == ["harmless"]
    assert len(all_operators()) == len(own_operators()) + 3
    (tmp_path / "others.py").write_text("OPERATORS = ['none']")
    monkeypatch.delitem(__import__("sys").modules, "others")
    with pytest.raises(OperatorError, match=r"others:OPERATORS is no Operator"):
        all_operators()


def test_names_and_files_are_taken_in_the_order_given_and_once() -> None:
    words = f"stopped,{PROGRAMS / 'wrong_operators.py'}, other_root,stopped"
    names = [one.name for one in choose_operators(words)]
    assert names == ["stopped", "blames_an_innocent", "never_strikes", "harmless", "other_root"]


@pytest.mark.parametrize(
    ("call", "operator", "changed"),
    [
        ("dist.broadcast(x, 0)", "other_root", "mutation_values.another_rank(0, None)"),
        ("dist.broadcast(x, src=r, group=g)", "other_root", "another_rank(r, g)"),
        ("dist.all_reduce(x)", "other_dtype", "mutation_values.another_dtype(x)"),
        ("dist.all_reduce(tensor=x)", "other_size", "tensor=(mutation_values.another_size(x)"),
        ("dist.all_reduce(x, op=dist.ReduceOp.MAX)", "other_reduction", ".MIN if"),
        ("dist.all_reduce(x, group=g)", "other_group", "group=(mutation_values.another_group(g)"),
        ("dist.send(x, 1)", "other_tag", "dist.send(x, 1, tag=(0 + 77 if"),
        ("dist.all_reduce(x)", "collective_left_out", "): dist.all_reduce(x)"),
        ("dist.all_reduce(x)", "collective_doubled", "and dist.all_reduce(x); dist.all_reduce(x)"),
    ],
)
def test_a_wrong_argument_stands_beside_the_right_one(
    call: str, operator: str, changed: str, tmp_path: Path
) -> None:
    source = f"import torch.distributed as dist\n\n\ndef step(x, r, g):\n    {call}\n"
    ((_, line),) = mutations(operator, source, tmp_path)
    assert changed in line


@pytest.mark.parametrize(
    ("imports", "call"),
    [
        ("from torch.distributed import all_reduce as total", "total(x)"),
        ("from torch import distributed", "distributed.all_reduce(x)"),
        ("import torch", "torch.distributed.all_reduce(x)"),
    ],
)
def test_calls_are_known_under_whatever_name_they_were_imported(
    imports: str, call: str, tmp_path: Path
) -> None:
    source = f"{imports}\n\n\ndef step(x):\n    {call}  # dist.\n"
    assert len(mutations("other_dtype", source, tmp_path)) == 1


def test_functions_of_others_with_such_names_are_left_alone(tmp_path: Path) -> None:
    source = "import functools as dist\n\n\ndef step(x):\n    dist.reduce(x, 0)\n"
    assert not mutations("other_root", source, tmp_path)


def test_an_early_return_is_none_where_a_value_is_returned(tmp_path: Path) -> None:
    body = "    y = x\n    dist.all_reduce(y)\n"
    source = f"import torch.distributed as dist\n\n\ndef step(x):\n{body}"
    assert len(mutations("return_early", source, tmp_path)) == 2
    assert not mutations("return_early", source + "    return y\n", tmp_path)


def test_groups_that_differ_make_a_swap_a_matter_of_their_order(tmp_path: Path) -> None:
    source = (
        "import torch.distributed as dist\n\n\ndef step(x, g):\n"
        "    dist.all_reduce(x)\n    dist.broadcast(x, 0)\n"
    )
    ((one, line),) = mutations("operations_swapped", source, tmp_path)
    assert one.truth.causes == [Cause.COLLECTIVE_MISMATCH]
    assert line.index("dist.broadcast(x, 0) if") < line.index("else dist.all_reduce(x)")
