"""The text of a cut-down hang: a script for torchrun, and the same as a scenario."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hanglab.analyzer.program.program import Program
from hanglab.analyzer.program.reduced_program import ReducedProgram, operations_of
from hanglab.analyzer.program.simulation import simulate
from hanglab.analyzer.recorded_endings import EndingKind, RecordedEnding
from hanglab.analyzer.verdict import Cause, Status, Verdict
from hanglab.analyzer.wording import name_ranks
from hanglab.harness.minimisation.call_lines import CallFunctions, call_functions, entry
from hanglab.harness.minimisation.endings import Ending, RankEnding
from hanglab.harness.rank_endings import call_of, definitions_of, imports_of
from hanglab.harness.scenarios.declaration import DEFAULT_HANG_AFTER_S, default_status

_STAND_STILL = ["", "", "def stand_still():", "    while True:", "        time.sleep(1)"]
_CREATE_GROUP = ["", "", "def create_group():", "    dist.new_group()"]
_FAIL = ["", "", "def fail():", '    raise RuntimeError("as the job did here")']
_ENDS = {
    Status.FAILED: "It ends with an error",
    Status.CORRUPT: "It ends well with wrong numbers",
}
_HANGS = (
    "It hangs until gloo's timeout of 30 minutes, or half a minute beyond Ctrl-C: so long torchrun "
    "lets ranks that wait"
)
_WIDTH = 96


@dataclass(frozen=True)
class Reproduction:
    """A cut-down job with how its ranks end, and of how much it is left."""

    reduced: ReducedProgram
    endings: tuple[Ending, ...]
    whole_ranks: int
    whole_operations: int
    cause: Cause
    #: Culprits, as ranks of the whole job.
    blamed: frozenset[int]
    status: Status = Status.HUNG
    #: What its real run came to, where that is another cause.
    caveat: str = ""
    #: The same ranks without the fault; None where none was found.
    sound: Program | None = None
    #: Seconds without movement after which its real run was captured.
    hang_after_s: float = DEFAULT_HANG_AFTER_S

    @property
    def reason(self) -> str:
        return f"{self.cause.value} by {name_ranks(sorted(self.blamed))}"

    @property
    def ranks(self) -> int:
        return len(self.reduced.ranks)

    @property
    def culprits(self) -> list[int]:
        """Culprits that are left, by their numbers in the script."""
        named = self.blamed
        return [rank for rank, name in enumerate(self.reduced.ranks) if name in named]

    @property
    def operations(self) -> int:
        return len(operations_of(self.reduced.program))


def script_text(reproduction: Reproduction, name: str) -> str:
    """A script that needs torch and torchrun alone; ``name`` is that of its file."""
    functions = call_functions([reproduction.reduced.program])
    how = (
        f"    torchrun --nproc-per-node {reproduction.ranks} {name}\n\n"
        f"{_wrapped(_ENDS.get(reproduction.status, _HANGS) + '.')}\n"
    )
    lines = [
        f'"""{_title(reproduction)}\n\n{how}\n{_history(reproduction)}\n"""',
        "",
        *_imports(reproduction),
        "",
        'dist.init_process_group("gloo")',
        "rank = dist.get_rank()",
        *_definitions(functions, reproduction),
        "",
        "",
        *_table("CALLS", functions, reproduction),
        _loop(reproduction, "CALLS[rank]"),
        "    call(*arguments)",
        *_after(functions, reproduction),
        "dist.destroy_process_group()",
    ]
    return "\n".join(lines) + "\n"


def scenario_text(reproduction: Reproduction, name: str, verdict: Verdict, script: str) -> str:
    """The script as a scenario called ``name``, with the verdict on its real run."""
    program, sound = reproduction.reduced.program, reproduction.sound
    functions = call_functions([program] if sound is None else [program, sound])
    which = "calls[rank]" if sound is None else "(calls if job.faulty else sound)[rank]"
    body = [
        "rank = job.rank",
        *_definitions(functions, reproduction),
        "",
        *_table("calls", functions, reproduction),
        *([] if sound is None else _sound_table(functions, sound)),
        f"{_loop(reproduction, which)}  # FAULT",
        "    call(*arguments)",
        *_after(functions, reproduction, faulty="job.faulty and "),
    ]
    if verdict.location is not None:
        body = _marked(body, script.splitlines()[verdict.location.line - 1].strip())
    control = "" if sound is not None else "\n\nNo control: `hanglab run --no-control` runs it."
    lines = [
        f'"""{_title(reproduction)}\n\n{_history(reproduction)}{control}\n"""',
        "",
        *_imports(reproduction),
        "",
        f"from hanglab.harness import Cause, Expect, {_status_import(verdict)}scenario",
        "",
        "",
        *_declaration(reproduction, verdict),
        f"def {name}(job):",
        textwrap.indent("\n".join(_one_blank(body)), "    "),
    ]
    return "\n".join(lines) + "\n"


def _declaration(reproduction: Reproduction, verdict: Verdict) -> Iterator[str]:
    assert verdict.cause is not None
    yield "@scenario("
    yield f"    world_size={reproduction.ranks},"
    yield f"    world_sizes=({reproduction.ranks},),"
    yield '    backends=("gloo",),'
    yield "    expect=Expect("
    yield f"        Cause.{verdict.cause.name},"
    yield f"        culprits={{{', '.join(map(str, sorted(verdict.culprits)))}}},"
    if verdict.status is not default_status(verdict.cause, "gloo"):
        yield f"        status=Status.{verdict.status.name},"
    if verdict.collective is not None:
        yield f"        group={_quoted(verdict.collective.group)},"
    if verdict.location is None:
        yield "        location=None,"
    yield "    ),"
    if reproduction.hang_after_s != DEFAULT_HANG_AFTER_S:
        yield f"    hang_after={reproduction.hang_after_s:g},"
    yield ")"


def _status_import(verdict: Verdict) -> str:
    assert verdict.cause is not None
    return "" if verdict.status is default_status(verdict.cause, "gloo") else "Status, "


def _title(reproduction: Reproduction) -> str:
    return _wrapped(f"Hangs as a recorded job did: {reproduction.reason}.")


def _history(reproduction: Reproduction) -> str:
    waits = "; ".join(_waits(reproduction))
    text = (
        f"`hanglab minimise` left {reproduction.ranks} of {reproduction.whole_ranks} ranks and "
        f"{reproduction.operations} of {reproduction.whole_operations:,} operations of that job. "
        f"{waits[:1].upper()}{waits[1:]}. To blame: "
        f"{name_ranks(reproduction.culprits)}. {reproduction.caveat}"
    )
    return _wrapped(text.rstrip())


def _waits(reproduction: Reproduction) -> Iterator[str]:
    """Ranks and the calls that they wait in, in words."""
    run = simulate(reproduction.reduced.program, "gloo")
    for rank, ending in enumerate(reproduction.endings):
        open_ = [one.action.op for one in run.ranks[rank].issued if not one.done]
        if open_:
            yield f"rank {rank} waits in {open_[-1]}"
        else:
            yield f"rank {rank} {_told_ending(ending)}"


def _told_ending(ending: Ending) -> str:
    if isinstance(ending, RecordedEnding):
        return f"ends as that of the job, of which evidence says: {ending.words}"
    return "ends" if ending is RankEnding.ITSELF else ending.value


def _kinds(reproduction: Reproduction) -> set[EndingKind]:
    return {one.kind for one in reproduction.endings if isinstance(one, RecordedEnding)}


def _imports(reproduction: Reproduction) -> Iterator[str]:
    modules = set(imports_of(_kinds(reproduction))) | ({"time"} if _stands(reproduction) else set())
    standard = sorted(modules - {"torch.utils.data"})
    yield from (f"import {module}" for module in standard)
    if standard:
        yield ""
    yield "import torch"
    yield "import torch.distributed as dist"
    if "torch.utils.data" in modules:
        yield "import torch.utils.data"


def _quoted(text: str) -> str:
    """A string literal in double quotes, whatever a dump had in the text."""
    return json.dumps(text)


def _wrapped(text: str) -> str:
    return textwrap.fill(text, _WIDTH, break_on_hyphens=False)


def _definitions(functions: CallFunctions, reproduction: Reproduction) -> list[str]:
    lines = list(functions.lines)
    if _stands(reproduction):
        lines += _STAND_STILL
    if RankEnding.CREATES_GROUP in reproduction.endings:
        lines += _CREATE_GROUP
    if RankEnding.RAISES in reproduction.endings:
        lines += _FAIL
    for text in definitions_of(_kinds(reproduction)):
        lines += ["", "", *text.splitlines()]
    return lines


def _stands(reproduction: Reproduction) -> bool:
    return bool(
        {RankEnding.STANDS_STILL, RankEnding.BEHIND_LOOP}.intersection(reproduction.endings)
    )


def _table(name: str, functions: CallFunctions, reproduction: Reproduction) -> Iterator[str]:
    """The table of the calls of each rank, in their order."""
    reduced = reproduction.reduced
    rows = []
    for rank, ending in enumerate(reproduction.endings):
        calls = functions.row(reduced.program, rank)
        if ending is RankEnding.STANDS_STILL:
            calls.append(entry("stand_still"))
        elif ending is RankEnding.CREATES_GROUP:
            calls.append(entry("create_group"))
        elif ending is RankEnding.RAISES:
            calls.append(entry("fail"))
        elif isinstance(ending, RecordedEnding):
            calls.append(entry(*call_of(ending)))
        rows.append((calls, f"rank {reduced.ranks[rank]} of the job"))
    return _rows(name, rows)


def _sound_table(functions: CallFunctions, sound: Program) -> Iterator[str]:
    ranks = range(sound.world_size)
    return _rows("sound", [(functions.row(sound, rank), f"rank {rank}") for rank in ranks])


def _rows(name: str, rows: Sequence[tuple[list[str], str]]) -> Iterator[str]:
    yield f"{name} = ["
    for calls, comment in rows:
        line = f"    [{', '.join(calls)}],  # {comment}"
        if len(line) <= _WIDTH:
            yield line
            continue
        yield f"    [  # {comment}"
        yield from (f"        {call}," for call in calls)
        yield "    ],"
    yield "]"


def _loop(reproduction: Reproduction, calls: str) -> str:
    """The line that makes each call in turn; counted where ranks leave it at different turns."""
    if RankEnding.BEHIND_LOOP in reproduction.endings:
        return f"for turn, (call, *arguments) in enumerate({calls}):"
    return f"for call, *arguments in {calls}:"


def _after(functions: CallFunctions, reproduction: Reproduction, faulty: str = "") -> Iterator[str]:
    if functions.pending:
        yield "for work in pending:"
        yield "    work.wait()"
    behind = [
        rank for rank, end in enumerate(reproduction.endings) if end is RankEnding.BEHIND_LOOP
    ]
    if behind:
        yield f"if {faulty}rank in {behind}:"
        yield "    stand_still()"


def _one_blank(lines: Sequence[str]) -> Iterator[str]:
    """Inside a function one blank line sets functions apart."""
    for before, line in zip(["", *lines], lines, strict=False):
        if before or line:
            yield line


def _marked(lines: Sequence[str], seen: str) -> list[str]:
    return [f"{line}  # SEEN" if line.strip() == seen else line for line in lines]
