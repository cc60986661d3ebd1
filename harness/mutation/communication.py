"""Calls of torch.distributed in a script's source, with their arguments by name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import libcst as cst

from hanglab.harness.mutation.source import Script, Statement

#: Functions with the names of their positional arguments.
PARAMETERS: Final = {
    "all_reduce": ("tensor", "op", "group", "async_op"),
    "broadcast": ("tensor", "src", "group", "async_op"),
    "reduce": ("tensor", "dst", "op", "group", "async_op"),
    "all_gather": ("tensor_list", "tensor", "group", "async_op"),
    "all_gather_into_tensor": ("output_tensor", "input_tensor", "group", "async_op"),
    "gather": ("tensor", "gather_list", "dst", "group", "async_op"),
    "scatter": ("tensor", "scatter_list", "src", "group", "async_op"),
    "reduce_scatter": ("output", "input_list", "op", "group", "async_op"),
    "reduce_scatter_tensor": ("output", "input", "op", "group", "async_op"),
    "all_to_all": ("output_tensor_list", "input_tensor_list", "group", "async_op"),
    "all_to_all_single": (
        *("output", "input", "output_split_sizes", "input_split_sizes", "group", "async_op"),
    ),
    "barrier": ("group", "async_op"),
    "broadcast_object_list": ("object_list", "src", "group"),
    "all_gather_object": ("object_list", "obj", "group"),
    "send": ("tensor", "dst", "group", "tag"),
    "recv": ("tensor", "src", "group", "tag"),
    "isend": ("tensor", "dst", "group", "tag"),
    "irecv": ("tensor", "src", "group", "tag"),
    "new_group": ("ranks", "timeout", "backend"),
}
MESSAGES: Final = frozenset({"send", "recv", "isend", "irecv"})
#: Calls of trainers that every rank has to make; told from others of their name by what they do.
TRAINER_CALLS: Final = frozenset(
    {
        *("wait_for_everyone", "gather", "gather_for_metrics", "reduce", "all_gather", "barrier"),
        *("log", "pad_across_processes", "save_checkpoint", "save_state", "evaluate"),
    }
)

#: Trainers that take seconds to import, with what of them a script is sure to use.
_TRAINERS: Final = {
    "accelerate": "accelerate",
    "lightning": "lightning",
    "pytorch_lightning": "pytorch_lightning",
    "transformers": "transformers.trainer",
}


@dataclass(frozen=True, eq=False)
class Communication:
    """A call of a function of torch.distributed."""

    function: str
    node: cst.Call
    statement: Statement

    @property
    def is_message(self) -> bool:
        return self.function in MESSAGES

    def argument(self, *names: str) -> cst.Arg | None:
        """The first of the arguments of these names that is given."""
        parameters = PARAMETERS[self.function]
        for number, argument in enumerate(self.node.args):
            if argument.star:
                return None
            name = argument.keyword.value if argument.keyword else None
            if name is None and number < len(parameters):
                name = parameters[number]
            if name in names:
                return argument
        return None

    def with_argument(self, name: str, value: cst.BaseExpression) -> cst.Call:
        """The call with this argument besides, by its name."""
        equal = cst.AssignEqual(
            whitespace_before=cst.SimpleWhitespace(""), whitespace_after=cst.SimpleWhitespace("")
        )
        return self.node.with_changes(
            args=[
                *(
                    argument
                    if not isinstance(argument.comma, cst.MaybeSentinel)
                    else argument.with_changes(
                        comma=cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
                    )
                    for argument in self.node.args
                ),
                cst.Arg(value, keyword=cst.Name(name), equal=equal),
            ]
        )


def communications(script: Script) -> list[Communication]:
    """Calls of torch.distributed in the script's statements, in their order."""
    modules, functions = _imported(script)
    found = []
    for statement in script.statements:
        if not script.can_change(statement):
            continue
        for call in calls_of(statement):
            name = _function(call, modules, functions)
            if name in PARAMETERS:
                found.append(Communication(name, call, statement))
    return found


def calls_of(statement: Statement) -> list[cst.Call]:
    """Calls in a simple statement, or in the header of a compound one; none in lambdas."""
    collector = _CommunicationCalls()
    parts: list[cst.CSTNode] = []
    node = statement.node
    if isinstance(node, cst.SimpleStatementLine):
        parts = [node]
    elif isinstance(node, cst.If | cst.While):
        parts = [node.test]
    elif isinstance(node, cst.For):
        parts = [node.iter]
    for part in parts:
        part.visit(collector)
    return collector.calls


class _CommunicationCalls(cst.CSTVisitor):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[cst.Call] = []

    def visit_Call(self, node: cst.Call) -> bool:
        self.calls.append(node)
        return True

    def visit_Lambda(self, node: cst.Lambda) -> bool:
        return False


def _imported(script: Script) -> tuple[set[str], dict[str, str]]:
    """Dotted names of torch.distributed in the script, and its functions by their local names."""
    modules, functions = {"torch.distributed"}, {}
    for module, name, alias in imports(script):
        if (module, name) == ("torch", "distributed"):
            modules.add(alias)
        elif module == "torch.distributed" and name is None:
            modules.add(alias)
        elif module == "torch.distributed" and name in PARAMETERS:
            functions[alias] = name
    return modules, functions


def imports(script: Script) -> Iterator[tuple[str, str | None, str]]:
    """Module, name in it and local name of all imports."""
    for statement in script.statements:
        for small in statement.simple.body if statement.simple else ():
            if isinstance(small, cst.Import | cst.ImportFrom) and not isinstance(
                small.names, cst.ImportStar
            ):
                for alias in small.names:
                    dotted = script.code(alias.name)
                    local = script.code(alias.asname.name) if alias.asname else dotted
                    if isinstance(small, cst.Import):
                        yield dotted, None, local
                    elif small.module is not None:
                        yield script.code(small.module), dotted, local


def _function(call: cst.Call, modules: set[str], functions: dict[str, str]) -> str:
    if isinstance(call.func, cst.Name):
        return functions.get(call.func.value, "")
    if isinstance(call.func, cst.Attribute) and _dotted(call.func.value) in modules:
        return call.func.attr.value
    return ""


def _dotted(node: cst.BaseExpression) -> str:
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute):
        return f"{_dotted(node.value)}.{node.attr.value}"
    return ""


def called_name(call: cst.Call) -> str:
    """The last part of what is called."""
    if isinstance(call.func, cst.Attribute):
        return call.func.attr.value
    return call.func.value if isinstance(call.func, cst.Name) else ""


def is_communication_call(statement: Statement, found: list[Communication]) -> bool:
    """True if the statement is one call that is known to communicate, and nothing else."""
    call = statement.call
    if call is None:
        return False
    return called_name(call) in TRAINER_CALLS or any(one.node is call for one in found)


def trainers_of(script: Script) -> list[str]:
    """Modules of trainers that the script imports, and that may be imported before ranks fork."""
    roots = {module.partition(".")[0] for module, _, _ in imports(script)}
    return [module for root, module in sorted(_TRAINERS.items()) if root in roots]
