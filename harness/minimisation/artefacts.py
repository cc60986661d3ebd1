"""The text of a cut-down hang: a script for torchrun, and the same as a scenario."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Sequence

from hanglab.analyzer.program.program import Program
from hanglab.analyzer.program.simulation import simulate
from hanglab.analyzer.recorded_endings import EndingKind, RecordedEnding
from hanglab.analyzer.simulated_verdict import semantics_of
from hanglab.analyzer.verdict import Status, Verdict
from hanglab.harness.minimisation.backend_lines import (
    SYNCHRONIZE,
    WAIT_FOR_DEVICE,
    commands,
    connections,
    initialisation,
    on_device,
    scenario_backends,
    told_hang,
)
from hanglab.harness.minimisation.call_layout import CallLayout, Words, lay_out, of_one_iteration
from hanglab.harness.minimisation.call_lines import CallFunctions, call_functions, entry
from hanglab.harness.minimisation.endings import RankEnding
from hanglab.harness.minimisation.reproduction import (
    WIDTH,
    Reproduction,
    history,
    title,
    wrapped,
)
from hanglab.harness.rank_endings import call_of, definitions_of, imports_of
from hanglab.harness.scenarios.declaration import DEFAULT_HANG_AFTER_S, default_status

_STAND_STILL = ["", "", "def stand_still():", "    while True:", "        time.sleep(1)"]
_IN_THREAD = [
    "",
    "",
    "def in_thread(call, *arguments):",
    "    thread = threading.Thread(target=call, args=arguments)",
    "    thread.start()",
    "    thread.join()",
]
_CREATE_GROUP = ["", "", "def create_group():", "    dist.new_group()"]
_FAIL = ["", "", "def fail():", '    raise RuntimeError("as the job did here")']
_ENDS = {
    Status.FAILED: "It ends with an error",
    Status.CORRUPT: "It ends well with wrong numbers",
}


def script_text(reproduction: Reproduction, name: str) -> str:
    """A script that needs torch and torchrun alone; ``name`` is that of its file."""
    backend = reproduction.backend
    functions = call_functions([reproduction.reduced.program], on_device=on_device(backend))
    layout = _layout(functions, reproduction)
    how = "".join(f"    {command}\n" for command in commands(backend, reproduction.ranks, name))
    how += f"\n{wrapped(_ENDS.get(reproduction.status, told_hang(backend)) + '.')}\n"
    lines = [
        f'"""{title(reproduction)}\n\n{how}\n{history(reproduction)}\n"""',
        "",
        *_imports(reproduction, script=True),
        "",
        *initialisation(backend),
        "rank = dist.get_rank()",
        *_definitions(functions, reproduction, layout),
        "",
        "",
        *_table("CALLS", layout, reproduction),
        _loop(reproduction, layout, "CALLS[rank]"),
        "    call(*arguments)",
        *layout.lines(),
        *_after(functions, reproduction),
        "dist.destroy_process_group()",
    ]
    return "\n".join(lines) + "\n"


def scenario_text(reproduction: Reproduction, name: str, verdict: Verdict, script: str) -> str:
    """The script as a scenario called ``name``, with the verdict on its real run."""
    program, sound = reproduction.reduced.program, reproduction.sound
    device = on_device(reproduction.backend)
    functions = call_functions([program] if sound is None else [program, sound], on_device=device)
    layout = _layout(functions, reproduction)
    which = "calls[rank]" if sound is None else "(calls if job.faulty else sound)[rank]"
    body = [
        "rank = job.rank",
        *(["device = job.device"] if device else []),
        *_definitions(functions, reproduction, layout),
        "",
        *_table("calls", layout, reproduction),
        *([] if sound is None else _sound_table(functions, layout, sound)),
        f"{_loop(reproduction, layout, which)}  # FAULT",
        "    call(*arguments)",
        *layout.lines("job.faulty and "),
        *_after(functions, reproduction, faulty="job.faulty and "),
    ]
    if verdict.location is not None:
        body = _marked(body, script.splitlines()[verdict.location.line - 1].strip())
    control = "" if sound is not None else "\n\nNo control: `hanglab run --no-control` runs it."
    status = _status_import(reproduction, verdict)
    lines = [
        f'"""{title(reproduction)}\n\n{history(reproduction)}{control}\n"""',
        "",
        *_imports(reproduction),
        "",
        f"from hanglab.harness import Cause, Expect, {status}scenario",
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
    yield f"    backends=({scenario_backends(reproduction.backend)}),"
    yield "    expect=Expect("
    yield f"        Cause.{verdict.cause.name},"
    yield f"        culprits={{{', '.join(map(str, sorted(verdict.culprits)))}}},"
    if verdict.status is not default_status(verdict.cause, reproduction.backend):
        yield f"        status=Status.{verdict.status.name},"
    if verdict.collective is not None:
        yield f"        group={_quoted(verdict.collective.group)},"
    if verdict.location is None:
        yield "        location=None,"
    yield "    ),"
    if reproduction.hang_after_s != DEFAULT_HANG_AFTER_S:
        yield f"    hang_after={reproduction.hang_after_s:g},"
    yield ")"


def _status_import(reproduction: Reproduction, verdict: Verdict) -> str:
    assert verdict.cause is not None
    usual = default_status(verdict.cause, reproduction.backend)
    return "" if verdict.status is usual else "Status, "


def _kinds(reproduction: Reproduction) -> set[EndingKind]:
    named = reproduction.reduced.ranks
    before = [
        done for rank, all_ in reproduction.before_stop.items() if rank in named for done in all_
    ]
    ends = [one for one in reproduction.endings if isinstance(one, RecordedEnding)]
    return {one.kind for one in [*before, *ends]}


def _imports(reproduction: Reproduction, *, script: bool = False) -> Iterator[str]:
    waits = _stands(reproduction) or on_device(reproduction.backend)
    modules = set(imports_of(_kinds(reproduction))) | ({"time"} if waits else set())
    if _in_threads(reproduction):
        modules.add("threading")
    if script and on_device(reproduction.backend):
        modules.add("os")
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


def _definitions(
    functions: CallFunctions, reproduction: Reproduction, layout: CallLayout
) -> list[str]:
    lines = [*functions.lines, *layout.definitions]
    if _in_threads(reproduction):
        lines += _IN_THREAD
    if _stands(reproduction):
        lines += _STAND_STILL
    if RankEnding.CREATES_GROUP in reproduction.endings:
        lines += _CREATE_GROUP
    if RankEnding.RAISES in reproduction.endings:
        lines += _FAIL
    for text in definitions_of(_kinds(reproduction)):
        lines += ["", "", *text.splitlines()]
    if on_device(reproduction.backend):
        lines += connections(functions.groups)
    return lines


def _in_threads(reproduction: Reproduction) -> bool:
    """True if a rank makes a call from another thread than most."""
    return any(one.thread for mine in reproduction.reduced.program.actions for one in mine)


def _stands(reproduction: Reproduction) -> bool:
    return bool(
        {RankEnding.STANDS_STILL, RankEnding.BEHIND_LOOP}.intersection(reproduction.endings)
    )


def _layout(functions: CallFunctions, reproduction: Reproduction) -> CallLayout:
    """The calls of each rank, in their order, and where in the script they are made."""
    reduced = reproduction.reduced
    run = simulate(reduced.program, semantics_of(reproduction.backend))
    rows: list[list[Words]] = []
    for rank, ending in enumerate(reproduction.endings):
        calls = functions.row(reduced.program, rank)
        done = reproduction.before_stop.get(reduced.ranks[rank], ())
        issued = run.ranks[rank].issued
        stops = next((n for n, one in enumerate(issued) if not one.done), len(calls))
        calls[stops:stops] = map(call_of, done)
        # Who waits stands in the loop where a peer has left it, also where hosts only enqueue.
        stands = ending is not RankEnding.ITSELF or RankEnding.BEHIND_LOOP in reproduction.endings
        if on_device(reproduction.backend) and stands:
            calls.append((SYNCHRONIZE,))
        if ending is RankEnding.STANDS_STILL:
            calls.append(("stand_still",))
        elif ending is RankEnding.CREATES_GROUP:
            calls.append(("create_group",))
        elif ending is RankEnding.RAISES:
            calls.append(("fail",))
        elif isinstance(ending, RecordedEnding):
            calls.append(call_of(ending))
        rows.append(calls)
    return lay_out(rows, reproduction.positions)


def _table(name: str, layout: CallLayout, reproduction: Reproduction) -> Iterator[str]:
    """The table of the calls of each rank that the loop makes."""
    told = zip(layout.rows, reproduction.reduced.ranks, strict=True)
    return _rows(name, [(calls, f"rank {rank} of the job") for calls, rank in told])


def _sound_table(functions: CallFunctions, layout: CallLayout, sound: Program) -> Iterator[str]:
    rows = [functions.row(sound, rank) for rank in range(sound.world_size)]
    rows = [of_one_iteration(calls) for calls in rows] if layout.numbered else rows
    return _rows("sound", [(calls, f"rank {rank}") for rank, calls in enumerate(rows)])


def _rows(name: str, rows: Sequence[tuple[list[Words], str]]) -> Iterator[str]:
    yield f"{name} = ["
    for words, comment in rows:
        calls = [entry(*one) for one in words]
        line = f"    [{', '.join(calls)}],  # {comment}"
        if len(line) <= WIDTH:
            yield line
            continue
        yield f"    [  # {comment}"
        yield from (f"        {call}," for call in calls)
        yield "    ],"
    yield "]"


def _loop(reproduction: Reproduction, layout: CallLayout, calls: str) -> str:
    """The line that makes each call in turn; counted where ranks leave it at different turns."""
    if layout.numbered:
        return f"for turn, call, *arguments in {calls}:"
    if RankEnding.BEHIND_LOOP in reproduction.endings:
        return f"for turn, (call, *arguments) in enumerate({calls}):"
    return f"for call, *arguments in {calls}:"


def _after(functions: CallFunctions, reproduction: Reproduction, faulty: str = "") -> Iterator[str]:
    if functions.pending:
        yield "for work in pending:"
        yield "    work.wait()"
    if on_device(reproduction.backend):
        yield from WAIT_FOR_DEVICE
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
