"""The options of the plugin, checked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pytest

from hanglab.harness.errors import UsageError
from hanglab.harness.jobs.backend_choice import read_backends, split_names
from hanglab.harness.jobs.shard import Shard, asked_for, read_shard
from hanglab.harness.launchers.selection import LAUNCHERS
from hanglab.harness.scenarios.number_bounds import MOST_RANKS
from hanglab.harness.scenarios.packs import all_packs
from hanglab.recorder.case.backends import DEFAULT_BACKEND


@dataclass(frozen=True)
class PluginOptions:
    """``world_sizes`` is empty where each scenario's own is meant."""

    backends: tuple[str, ...]
    launchers: tuple[str, ...]
    world_sizes: tuple[int, ...]
    repeat: int
    #: The part that runs here; None for all.
    shard: Shard | None
    #: Packs whose scenarios alone are collected; () for all.
    packs: tuple[str, ...]
    #: True where files of any name are looked into, not `hanglab_*.py` alone.
    any_name: bool
    #: True where the scenarios that come with hanglab are collected.
    with_project: bool

    @property
    def combinations(self) -> int:
        return len(self.backends) * len(self.launchers) * max(1, len(self.world_sizes))


def read_options(config: pytest.Config) -> PluginOptions:
    """Raises pytest.UsageError for what makes no sense."""
    option = config.option
    has_paths = config.args_source is pytest.Config.ArgsSource.ARGS
    backends = _backends(option.hanglab_backend)
    launchers = _names("--hanglab-launcher", option.hanglab_launcher, list(LAUNCHERS))
    world_sizes = tuple(
        _number("--hanglab-world-size", word, MOST_RANKS)
        for word in split_names(option.hanglab_world_size or ())
    )
    return PluginOptions(
        backends=backends,
        launchers=launchers,
        world_sizes=world_sizes,
        repeat=_number("--hanglab-repeat", option.hanglab_repeat or "1"),
        shard=_shard(option.hanglab_shard, asked_for(backends, launchers, world_sizes)),
        packs=_packs(option.hanglab_pack),
        any_name=option.hanglab and has_paths,
        with_project=option.hanglab_builtin
        or (bool(option.hanglab or option.hanglab_pack) and not has_paths),
    )


def _backends(given: Iterable[str] | None) -> tuple[str, ...]:
    try:
        return read_backends(",".join(given or ()) or DEFAULT_BACKEND)
    except UsageError as failure:
        raise pytest.UsageError(f"--hanglab-backend: {failure}") from failure


def _names(option: str, given: Iterable[str] | None, known: Sequence[str]) -> tuple[str, ...]:
    words = split_names(given or ()) or [known[0]]
    for word in words:
        if word not in known:
            raise pytest.UsageError(f"{option}={word}: there are {', '.join(known)}")
    return tuple(words)


def _packs(given: Iterable[str] | None) -> tuple[str, ...]:
    words = split_names(given or ())
    known = [pack.name for pack in all_packs()] if words else []
    return _names("--hanglab-pack", words, known) if words else ()


def _number(option: str, word: str, most: int | None = None) -> int:
    # int() refuses thousands of digits with an error of its own.
    if not re.fullmatch(r"0*[1-9][0-9]{0,17}", word):
        raise pytest.UsageError(f"{option}={word}: a number from 1 on is needed")
    if most is not None and int(word) > most:
        raise pytest.UsageError(f"{option}={word}: at most {most} can be had")
    return int(word)


def _shard(word: str | None, asked: str) -> Shard | None:
    if word is None:
        return None
    try:
        return read_shard(word, asked)
    except UsageError as failure:
        raise pytest.UsageError(f"--hanglab-shard: {failure}  {failure.advice}") from failure
