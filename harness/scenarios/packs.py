"""Packs: scenarios of one field under a name, of hanglab's own and of installed distributions."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Final

from hanglab.harness.errors import UsageError
from hanglab.harness.scenarios import discovery
from hanglab.harness.scenarios.declaration import Scenario
from hanglab.harness.scenarios.discovery import BrokenFile, Found

#: Entry points by which distributions bring packs: ``name = "package"``, whose folder it is.
ENTRY_POINTS: Final = "hanglab.packs"

#: Those of the scenarios that come with hanglab.
BUILT_IN: Final = {
    "serving": "Engines that serve models: schedulers, caches, replicas, broadcasts to workers.",
    "rl": "Reinforcement learning: rollout beside training, and weights on their way between them.",
    "training": "Training loops: gradients, steps, inputs, groups, stragglers.",
    "checkpoint": "Saving and resuming: who writes, who sees it, threads beside the training.",
    "data": "Input: loaders, workers, shards, streams.",
    "network": "Links, addresses, ports, the store.",
    "host": "The rank's host and process: memory, disks, limits, locks, the interpreter.",
    "nccl": "What gloo cannot show: NCCL's devices, kernels, launches, communicators.",
}

#: Pack of a scenario whose declaration names none, by category.
_OF_CATEGORY: Final = {
    "data_starvation": "data",
    "network": "network",
    "resource": "host",
    "software": "host",
    "hardware": "nccl",
}


@dataclass(frozen=True)
class Pack:
    """A pack by its name; ``folder`` holds the scenarios of an installed one, None of hanglab's."""

    name: str
    description: str
    #: Name of the distribution that brings it.
    distribution: str
    folder: Path | None = None


def packs_of(scenario: Scenario) -> tuple[str, ...]:
    """Packs that a scenario is in: those that it declares, and that whose folder it is in.

    Of a declaration without any it is the one that belongs to its category, and ``nccl`` where gloo
    cannot show it.
    """
    installed = [
        pack.name
        for pack in installed_packs()
        if pack.folder is not None and scenario.source.is_relative_to(pack.folder)
    ]
    named = list(scenario.packs)
    if not named and not installed:
        named = [_OF_CATEGORY.get(scenario.category or "", "training")]
        if "gloo" not in scenario.backends:
            named.append("nccl")
    return tuple(dict.fromkeys([*named, *installed]))


def all_packs() -> list[Pack]:
    """Hanglab's own, then the installed ones."""
    own = [Pack(name, description, "hanglab") for name, description in BUILT_IN.items()]
    return [*own, *installed_packs()]


@cache
def installed_packs() -> tuple[Pack, ...]:
    """Packs of other distributions; none of their code is run.

    Raises UsageError where two have one name.
    """
    found: dict[str, Pack] = {}
    for point in entry_points(group=ENTRY_POINTS):
        pack = _read(point)
        taken = found.get(pack.name)
        if pack.name in BUILT_IN or taken is not None:
            other = taken.distribution if taken else "hanglab"
            raise UsageError(
                f"{pack.distribution} and {other} both bring a pack {pack.name!r}.",
                "Uninstall one, or have its authors rename it.",
            )
        found[pack.name] = pack
    return tuple(found.values())


def select(wanted: Sequence[str], packs: Collection[str]) -> Found:
    """Scenarios by name, file or folder as in ``discovery.select``, of the named packs alone.

    Without names all of those packs, and without packs all of hanglab's own.  Raises UsageError for
    a pack that does not exist.
    """
    known = {pack.name: pack for pack in all_packs()} if packs else {}
    for name in packs:
        if name not in known:
            raise UsageError(
                f"There is no pack {name!r}.",
                f"There are {', '.join(known)}; `hanglab packs` tells of them.",
            )
    found = discovery.select(wanted)
    if not packs:
        return found
    if not wanted:
        for pack in (known[name] for name in packs):
            if pack.folder is not None:
                found.add(_read_pack(pack))
    found.scenarios = in_packs(found.scenarios, packs)
    return found


def in_packs(scenarios: Iterable[Scenario], packs: Collection[str]) -> list[Scenario]:
    """Those that are in one of the packs; all where none is named."""
    return [one for one in scenarios if not packs or set(packs_of(one)) & set(packs)]


def _read_pack(pack: Pack) -> Found:
    assert pack.folder is not None
    if not pack.folder.is_dir():
        reason = f"pack {pack.name}: {pack.distribution} is installed without this folder"
        return Found(broken=[BrokenFile(pack.folder, 1, reason)])
    return discovery.read_folder(pack.folder)


def _read(point: EntryPoint) -> Pack:
    distribution = point.dist.name if point.dist is not None else point.value
    # Of a name without dots this finds the package and imports nothing.
    spec = importlib.util.find_spec(point.value) if "." not in point.value else None
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    if not places:
        raise UsageError(
            f"Pack {point.name!r} of {distribution} names {point.value!r}, which is no package.",
            "An entry point of hanglab.packs names a package at the top, whose folder it is.",
        )
    folder = Path(places[0]).resolve()
    return Pack(point.name, _first_sentence(folder / "__init__.py"), distribution, folder)


def _first_sentence(file: Path) -> str:
    """First paragraph of a module's docstring; empty where it has none or cannot be read."""
    try:
        text = ast.get_docstring(ast.parse(file.read_bytes())) or ""
    except (OSError, SyntaxError, ValueError):
        return ""
    return " ".join(text.split("\n\n")[0].split())
