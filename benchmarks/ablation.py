"""Ablation of the analyzer: verdicts on trials with one rule switched off, or on, at a time.

    python -m benchmarks.ablation [--trials 2000] [--seed 0] [--jobs 2] [--each 50]

A rule is a function of the graph, of matching, of the causes in synchronization or of the
hypotheses that says yes or no, finds something, or changes what was found.  Each is switched alone,
so that it finds nothing, always says no, or always yes, in up to ``--each`` of the trials in which
it said anything else.  Prints for each in how many it spoke, in how many of those tried the
judgement got worse and better, and which rules never spoke.  A rule that few trials need may be one
that recorded Cases do, and several may stand in for each other: to switch one off tells what it is
worth beside all others.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import inspect
import json
import pkgutil
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sized
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from os import cpu_count
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from types import FunctionType, ModuleType
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from hanglab.analyzer.engine import analyze
from hanglab.harness.trials.drawing import make_trial
from hanglab.harness.trials.folders import write_folder
from hanglab.harness.trials.truth import Trial
from tests.trials.judging import Judgement, judge

#: Seeds that a process tries at once.
BLOCK = 10
PACKAGES = ("graph", "matching", "causes.synchronization", "hypotheses")
#: What a function says that finds nothing, by how its return type begins.
NOTHING: dict[str, Callable[[], object]] = {
    "list[": list, "set[": set, "frozenset[": frozenset, "dict[": dict, "tuple[int, ...]": tuple,
    "Iterator[": lambda: iter(()), "Mapping[": dict, "Sequence[": tuple, "Collection[": tuple,
}  # fmt: skip


class Switch(NamedTuple):
    """A rule, and what it says while it is switched: nothing, no, or yes."""

    rule: str
    says: str


class Rule(NamedTuple):
    """A function, where it is kept and under which name, and its return type."""

    home: ModuleType | type
    name: str
    function: FunctionType
    returns: str


class Effect(NamedTuple):
    seed: int
    switch: Switch
    before: Judgement
    after: Judgement


@dataclass
class _State:
    """Switches of this process: the one that is on, and those of rules that spoke since then."""

    switched: Switch | None = None
    spoke: set[Switch] = field(default_factory=set)


_STATE = _State()


class Tried(NamedTuple):
    """Outcome of some seeds."""

    judged: Counter[Judgement]
    #: Trials in which each rule said something else than its switch, and those that were tried.
    spoke: Counter[Switch]
    tried: Counter[Switch]
    effects: list[Effect]


def find_rules() -> dict[str, Rule]:
    """Rules by module and name."""
    found: dict[str, Rule] = {}
    for module in _modules():
        for name, value in vars(module).items():
            if isinstance(value, FunctionType) and value.__module__ == module.__name__:
                _add(found, module, name, value, f"{_short(module)}.{name}")
            elif isinstance(value, type) and value.__module__ == module.__name__:
                for method, member in vars(value).items():
                    function = _function_of(member)
                    if function is not None and not method.startswith("__"):
                        rule = f"{_short(module)}.{name}.{method}"
                        _add(found, value, method, function, rule)
    return found


def _modules() -> Iterator[ModuleType]:
    for package in PACKAGES:
        root = importlib.import_module(f"hanglab.analyzer.{package}")
        for info in pkgutil.iter_modules(root.__path__, f"{root.__name__}."):
            yield importlib.import_module(info.name)


def _short(module: ModuleType) -> str:
    return module.__name__.removeprefix("hanglab.analyzer.")


def _function_of(member: object) -> FunctionType | None:
    if isinstance(member, functools.cached_property):
        member = member.func
    if isinstance(member, property):
        member = member.fget
    return member if isinstance(member, FunctionType) else None


def _add(
    found: dict[str, Rule], home: ModuleType | type, name: str, function: FunctionType, rule: str
) -> None:
    returns = str(inspect.signature(function).return_annotation)
    if returns == "bool" or "None" in returns or any(map(returns.startswith, NOTHING)):
        found[rule] = Rule(home, name, function, returns)


def _nothing(returns: str) -> object:
    made = next((make for start, make in NOTHING.items() if returns.startswith(start)), None)
    return made() if made is not None and not returns.endswith("None") else None


def install() -> None:
    """Put a switch in front of every rule, wherever it was imported to."""
    for name, rule in find_rules().items():
        wrapped = _switchable(name, rule)
        member = vars(rule.home)[rule.name]
        if isinstance(member, functools.cached_property):
            cached = functools.cached_property(wrapped)
            cached.__set_name__(rule.home, rule.name)  # type: ignore[arg-type]
            setattr(rule.home, rule.name, cached)
        elif isinstance(member, property):
            setattr(rule.home, rule.name, property(wrapped))
        elif isinstance(rule.home, type):
            setattr(rule.home, rule.name, wrapped)
        else:
            _replace(rule.function, wrapped)


def _replace(function: FunctionType, wrapped: Callable[..., object]) -> None:
    for module in [*sys.modules.values()]:
        if getattr(module, "__name__", "").startswith("hanglab."):
            for name, value in [*vars(module).items()]:
                if value is function:
                    setattr(module, name, wrapped)


def _switchable(name: str, rule: Rule) -> Callable[..., object]:
    no, yes, nothing = (Switch(name, says) for says in ("no", "yes", "nothing"))

    @functools.wraps(rule.function)
    def switched(*args: object, **options: object) -> object:
        switch = _STATE.switched
        if switch is not None and switch.rule == name:
            return _nothing(rule.returns) if switch == nothing else switch == yes
        found = rule.function(*args, **options)
        if rule.returns == "bool":
            _STATE.spoke.add(no if found else yes)
        elif rule.returns == "None":
            _STATE.spoke.add(nothing)
        elif isinstance(found, Iterator):
            listed = [*found]
            if listed:
                _STATE.spoke.add(nothing)
            return iter(listed)
        elif found is not None and not (isinstance(found, Sized) and not len(found)):
            _STATE.spoke.add(nothing)
        return found

    return switched


def try_seeds(seeds: range, enough: frozenset[Switch]) -> Tried:
    """The trials of these seeds, each again with each switch of which there is not ``enough``."""
    found = Tried(Counter(), Counter(), Counter(), [])
    for seed in seeds:
        trial = make_trial(seed)
        if trial is None:
            continue
        with TemporaryDirectory(prefix="hanglab-ablation-") as folder:
            write_folder(trial, Path(folder))
            _STATE.spoke = set()
            before = judge(trial, analyze(folder))
            spoke = sorted(_STATE.spoke)
            found.judged[before] += 1
            found.spoke.update(spoke)
            for switch in (one for one in spoke if one not in enough):
                after = _judge_without(trial, folder, switch)
                found.tried[switch] += 1
                if after is not None and after is not before:
                    found.effects.append(Effect(seed, switch, before, after))
    return found


def _judge_without(trial: Trial, folder: str, switch: Switch) -> Judgement | None:
    """The judgement with a switch on; None where its caller takes for granted that it finds."""
    _STATE.switched = switch
    try:
        return judge(trial, analyze(folder))
    except Exception:
        return None
    finally:
        _STATE.switched = None


#: Judgements from the best to the worst.
RANKS = {
    Judgement.RIGHT: 0, Judgement.INCONCLUSIVE: 0, Judgement.MISSED: 1, Judgement.CAUSE: 2,
    Judgement.GUESS: 2, Judgement.WRONG: 3, Judgement.INNOCENT: 3,
}  # fmt: skip


def try_all(seeds: range, jobs: int, each: int) -> Iterator[Tried]:
    spoke: Counter[Switch] = Counter()
    blocks = [seeds[at : at + BLOCK] for at in range(0, len(seeds), BLOCK)]
    with ProcessPoolExecutor(jobs, initializer=install) as pool:
        running: list[Future[Tried]] = []
        while blocks or running:
            while blocks and len(running) < 2 * jobs:
                enough = frozenset(one for one, count in spoke.items() if count >= each)
                running.append(pool.submit(try_seeds, blocks.pop(0), enough))
            found = running.pop(0).result()
            spoke += found.tried
            yield found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=2000, help="seeds that are drawn")
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--jobs", type=int, default=cpu_count() or 1, help="processes")
    parser.add_argument("--each", type=int, default=50, help="trials a switch is tried in")
    parser.add_argument("--effects", type=Path, help="file for a line of each changed judgement")
    options = parser.parse_args()
    total = Tried(Counter(), Counter(), Counter(), [])
    told, done = monotonic(), 0
    seeds = range(options.seed, options.seed + options.trials)
    for found in try_all(seeds, options.jobs, options.each):
        total.judged.update(found.judged)
        total.spoke.update(found.spoke)
        total.tried.update(found.tried)
        total.effects.extend(found.effects)
        done += BLOCK
        if monotonic() - told > 60:
            told = monotonic()
            print(f"{min(done, options.trials)} of {options.trials} seeds", file=sys.stderr)
    if options.effects:
        lines = (json.dumps(one) for one in total.effects)
        options.effects.write_text("".join(f"{line}\n" for line in lines))
    print_table(total)
    return 0


def print_table(total: Tried) -> None:
    by_switch: dict[Switch, list[Effect]] = defaultdict(list)
    for effect in total.effects:
        by_switch[effect.switch].append(effect)
    print(f"{'rule':72}{'says':>9}{'spoke':>7}{'tried':>7}{'worse':>7}{'better':>8}")
    for switch, count in sorted(total.spoke.items()):
        changes = [RANKS[one.after] - RANKS[one.before] for one in by_switch[switch]]
        worse, better = sum(one > 0 for one in changes), sum(one < 0 for one in changes)
        kinds = Counter(f"{o.before.value} to {o.after.value}" for o in by_switch[switch])
        print(
            f"{switch.rule:72}{switch.says:>9}{count:7}{total.tried[switch]:7}{worse:7}{better:8}",
            ", ".join(f"{number} {kind}" for kind, number in kinds.most_common()),
        )
    rules = find_rules()
    silent = sorted(rules.keys() - {switch.rule for switch in total.spoke})
    print(", ".join(f"{count} {one.value}" for one, count in total.judged.most_common()))
    print(f"{len(rules)} rules; {len(silent)} never spoke: {', '.join(silent)}")


if __name__ == "__main__":
    raise SystemExit(main())
