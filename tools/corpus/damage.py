"""Entries with some evidence damaged or gone; the truth stays, a verdict may get weaker."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random

from hanglab.harness.corpus.entries import add_entry, entry_names, read_entry, unpack_entry

_ORIGIN = "damaged"


def _cut(path: Path, random: Random) -> None:
    path.write_bytes(path.read_bytes()[: random.randrange(path.stat().st_size + 1)])


def _overwrite(path: Path, random: Random) -> None:
    data = bytearray(path.read_bytes())
    at = random.randrange(len(data) + 1)
    data[at : at + 40] = random.randbytes(40)
    path.write_bytes(data)


def _remove(path: Path, random: Random) -> None:
    path.unlink()


_DAMAGES: dict[str, Callable[[Path, Random], None]] = {
    "cut": _cut,
    "overwritten": _overwrite,
    "removed": _remove,
}


def add_damaged(corpus: Path, seeds: Iterable[int]) -> list[str]:
    """Add a damaged copy of an entry for each seed; returns their names."""
    whole = [
        name
        for name in entry_names(corpus)
        if not name.startswith(_ORIGIN) and read_entry(corpus, name).truth is not None
    ]
    added = []
    for seed in seeds:
        random = Random(seed)
        # Origins in turn, for they are of different sizes.
        origins = sorted({name.partition("/")[0] for name in whole})
        origin = origins[seed % len(origins)]
        chosen = random.choice([name for name in whole if name.partition("/")[0] == origin])
        added.append(_add_copy(corpus, chosen, seed, random))
    return added


def _add_copy(corpus: Path, chosen: str, seed: int, random: Random) -> str:
    damage = random.choice(sorted(_DAMAGES))
    name = f"{_ORIGIN}/{chosen.replace('/', '.')}.{damage}-{seed}"
    with tempfile.TemporaryDirectory(prefix="hanglab-corpus-") as scratch:
        folder = Path(scratch, "copy")
        unpack_entry(corpus, chosen, folder)
        paths = _choose_files(folder, random)
        for path in paths:
            times = path.stat()
            _DAMAGES[damage](path, random)
            if path.exists():
                os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        entry = read_entry(corpus, chosen)
        files = ", ".join(path.relative_to(folder).as_posix() for path in paths)
        entry.source = f"{chosen}, {damage}: {files}"
        entry.verdict = None
        add_entry(corpus, name, folder, entry)
    return name


def _choose_files(folder: Path, random: Random) -> list[Path]:
    """One file, or all of its name: one kind of evidence, for a Case."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    one = random.choice(files)
    alike = [path for path in files if path.name == one.name]
    return alike if random.random() < 0.5 else [one]
