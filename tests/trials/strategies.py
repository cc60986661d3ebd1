"""Hypothesis strategies of trials: small programs first, so that what fails shrinks."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from hanglab.harness.trials.faults import CAUSES, Fault, play_with, random_fault
from hanglab.harness.trials.losses import Loss, no_loss
from hanglab.harness.trials.programs import Group, Program, Transport
from hanglab.harness.trials.shapes.building import Thread, Waits, program
from hanglab.harness.trials.truth import Trial

#: One operation that its members make in the same order: group, kind, and how it is waited for.
WAITS: tuple[Waits, ...] = ("stream", "host", "never")
KINDS = ("all_reduce", "all_gather", "broadcast", "barrier", "exchange")


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Ranks that go through one list of operations over groups, each as far as it is a member."""
    size = draw(st.integers(2, 5))
    backend = draw(st.sampled_from(("nccl", "nccl", "gloo")))
    groups = {"0": Group(tuple(range(size)), "default_pg", backend)}
    members = st.lists(st.integers(0, size - 1), min_size=2, unique=True)
    for number, some in enumerate(draw(st.lists(members, max_size=2))):
        groups[str(number + 1)] = Group(tuple(sorted(some)), "part", backend)
    randoms = draw(st.randoms(use_true_random=False))
    threads = [Thread(randoms) for _ in range(size)]
    operation = st.tuples(
        st.sampled_from(sorted(groups)), st.sampled_from(KINDS), st.sampled_from(WAITS)
    )
    body = draw(st.lists(operation, min_size=1, max_size=5))
    for _ in range(draw(st.integers(1, 3))):
        for line, (group, kind, wait) in enumerate(body, 10):
            mine = groups[group].members
            if kind == "exchange":
                if backend == "nccl":  # One sends, its neighbour receives.
                    for name, one, other in (
                        ("send", mine[0], mine[1]),
                        ("recv", mine[1], mine[0]),
                    ):
                        threads[one].issue(group, name, peer=other, wait=wait, line=line)
                continue
            for rank in mine:
                threads[rank].compute()
                root = mine[0] if kind == "broadcast" else None
                threads[rank].issue(group, kind, root=root, wait=wait, line=line)
    assume(all(thread.steps for thread in threads))
    transport = Transport(eager=draw(st.booleans()), tolerant=False)
    return replace(program("drawn", groups, [[t] for t in threads]), transport=transport)


@st.composite
def losses(draw: st.DrawFn, trial: Trial, stale: bool) -> Loss:
    """What is kept of the trial's dumps; ``stale``: one rank may have been dumped earlier."""
    size = trial.program.size
    values: dict[str, Any] = dict(vars(no_loss(trial.play)))
    values["missing"] = frozenset(draw(st.sets(st.integers(0, size - 1), max_size=size // 3)))
    values["rings"] = (draw(st.sampled_from((2000, 8, 4))),) * size
    values["active_only"] = draw(st.booleans())
    values["file_times"] = not draw(st.booleans())
    early = draw(st.sets(st.integers(0, size - 1), max_size=1)) if stale else set()
    when = draw(st.floats(0, 1)) * trial.play.last_event if early else 0.0
    values["moments"] = tuple(when if rank in early else inf for rank in range(size))
    return Loss(**values)


@st.composite
def trials(draw: st.DrawFn, *, stale: bool = False) -> Trial:
    """A drawn program with one fault or none, of which some dumps may be lost."""
    drawn = draw(programs())
    healthy = play_with(drawn, ())
    assume(not healthy.open and not healthy.unfinished)
    kind = draw(st.sampled_from(("none", *CAUSES)))
    faults: tuple[Fault, ...] = ()
    if kind != "none":
        fault = random_fault(draw(st.randoms(use_true_random=False)), drawn, kind)
        assume(fault is not None)
        assert fault is not None
        faults = (fault,)
    played = play_with(drawn, faults)
    assume(not faults or played.open)
    whole = Trial(0, drawn, faults, played, no_loss(played))
    return replace(whole, loss=draw(losses(whole, stale)))
