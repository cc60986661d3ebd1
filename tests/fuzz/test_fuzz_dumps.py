"""Random and damaged dumps: the loader answers with a sound dump or with a reason."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from soundness import check_alike, check_short_way, check_sound
from values_of_dumps import SEEDS, alike, damaged, dumps, in_json, pickled, repeating

from hanglab.analyzer.flight_recorder import DumpError, load_folder, load_many
from hanglab.analyzer.flight_recorder.formats import read_dump

FINDINGS = Path(__file__).parents[1] / "data" / "dumps" / "fuzz"
_settings = settings(
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def read(data: bytes, *, contained: bool = False) -> Any:
    try:
        dump = read_dump(data, rank=0, source="x", contained=contained)
    except DumpError as error:
        return type(error)
    check_sound(dump)
    return dump


def check_pickled(pair: tuple[Any, bytes]) -> None:
    """Both decoders yield the same; a second writing by another protocol too."""
    value, data = pair
    whole = repr(read(data))
    assert repr(read(data, contained=True)) == whole
    assert repr(read(pickle.dumps(value, 4))) == whole


def check_json(data: bytes) -> None:
    read(data)
    read(data[: len(data) * 2 // 3])


def check_damaged(data: bytes) -> None:
    read(data)


def check_repeating(data: bytes) -> None:
    check_short_way(data)


def check_likeness(files: list[bytes]) -> None:
    check_alike(files)


def check_workers(files: list[bytes]) -> None:
    """C's unpickler on damaged bytes: whatever it does, each file has its own answer."""
    for result in load_many([(data, n, "x") for n, data in enumerate(files)], deadline_s=2.0):
        if not isinstance(result, DumpError):
            check_sound(result)
        else:
            assert "could not be read" not in result.reason, result.reason


CHECKS: dict[str, tuple[st.SearchStrategy[Any], Callable[[Any], None]]] = {
    "pickled": (pickled(), check_pickled),
    "json": (in_json(), check_json),
    "repeating": (repeating(), check_repeating),
    "alike": (alike(), check_likeness),
    "damaged": (damaged(), check_damaged),
    "workers": (st.lists(damaged(), min_size=40, max_size=40), check_workers),
}


def _run(name: str, examples: int, number: int) -> None:
    strategy, check = CHECKS[name]
    test = given(strategy)(lambda value: check(value))
    seed(number)(settings(_settings, max_examples=examples)(test))()


@pytest.mark.few(3)
@pytest.mark.parametrize("name", CHECKS)
def test_a_few_random_dumps(name: str) -> None:
    _run(name, 5 if name == "workers" else 100, 0)


@pytest.mark.long
@pytest.mark.timeout(0)
def test_many_random_dumps() -> None:
    """For HANGLAB_FUZZ_MINUTES (default 30), with other seeds each time; prints the counts."""
    end = time.monotonic() + 60 * float(os.environ.get("HANGLAB_FUZZ_MINUTES", "30"))
    counts = dict.fromkeys(CHECKS, 0)
    number = int(time.time())
    while time.monotonic() < end:
        for name in CHECKS:
            number += 1
            examples = 5 if name == "workers" else 500
            _run(name, examples, number)
            counts[name] += examples
    print("\nexamples:", counts)


@pytest.mark.parametrize("path", sorted(FINDINGS.iterdir()), ids=lambda path: path.name)
def test_what_fuzzing_found(path: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    data = path.read_bytes()
    read(data)
    result = load_many([(data, 0, path.name)])[0]
    if isinstance(result, DumpError):
        assert "could not be read" not in result.reason
    else:
        check_sound(result)
    (tmp_path / "dump_0").write_bytes(data)
    (tmp_path / "dump_1").write_bytes(SEEDS[0])
    assert load_folder(tmp_path).dumps[-1].rank == 1
    assert capfd.readouterr() == ("", "")


@given(dumps)
@_settings
def test_a_dump_without_damage_says_none(value: Any) -> None:
    result = read(pickle.dumps(value, 4))
    if not isinstance(result, type) and type(value.get("entries", [])) in (list, tuple):
        if all(type(entry) is dict for entry in value.get("entries", [])):
            assert result.damage == ""
