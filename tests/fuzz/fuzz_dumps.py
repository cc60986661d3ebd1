"""Coverage-guided fuzzing of the loader, with atheris.

    python tests/fuzz/fuzz_dumps.py [-max_total_time=1800] [other options of libFuzzer] [CORPUS]

The bytes go to the decoders that need no worker process: their effort must be
linear in the bytes, and nothing but DumpError may leave them.  A finding stops
the run and lies in the current folder as ``crash-*``, ``timeout-*`` or ``oom-*``.
With a folder CORPUS the inputs that reached new code stay there for the next run.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["hanglab.analyzer.flight_recorder"]):
    from hanglab.analyzer.flight_recorder.errors import DumpError
    from hanglab.analyzer.flight_recorder.formats import read_dump
    from hanglab.analyzer.flight_recorder.pattern_scan import find_entries

from rings_of_dumps import ring
from soundness import check_alike, check_short_way, check_sound

DATA = Path(__file__).parents[1] / "data" / "dumps"
#: A peer's dump that inputs are read by, so far as they are like it.
PEER = ring(0)


def one_input(data: bytes) -> None:
    try:
        dump = read_dump(data, rank=0, source="fuzz", contained=False)
    except DumpError as error:
        assert error.reason and len(error.reason) < 1000
        return
    check_sound(dump)
    if find_entries(data) is None:
        return
    check_short_way(data)
    check_alike([PEER, data])
    # What it teaches of itself must hold for itself and for its peer, too.
    check_alike([data, PEER, data])


def seeds(folder: Path) -> None:
    """Puts small real dumps, earlier findings and rings to where the fuzzer adds its own."""
    for number, path in enumerate(sorted(DATA.rglob("*"))):
        if path.is_file() and path.suffix != ".py" and path.stat().st_size < 20_000:
            shutil.copyfile(path, folder / f"seed_{number}_{path.name}")
    for rank in range(4):
        (folder / f"ring_{rank}").write_bytes(ring(rank))


def main() -> None:
    options = [argument for argument in sys.argv[1:] if argument.startswith("-")]
    folders = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    with tempfile.TemporaryDirectory() as made:
        corpus = Path(folders[0]) if folders else Path(made)
        corpus.mkdir(parents=True, exist_ok=True)
        seeds(corpus)
        limits = ["-max_len=8192", "-timeout=5", "-rss_limit_mb=2048"]
        words = f"-dict={Path(__file__).with_name('dumps.dict')}"
        atheris.Setup([sys.argv[0], *limits, words, *options, str(corpus)], one_input)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
