"""The entries of all ranks as Parquet files."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from hanglab.analyzer.errors import InputError
from hanglab.analyzer.flight_recorder import Loaded, load_folder, load_many
from hanglab.analyzer.tables.database import TABLES, write_database

sys.path.insert(0, str(Path(__file__).parents[1] / "dumps"))
from dump_builders import dump, entry, frames, torch_pickle

ROOT = Path(__file__).parents[3]
GLOO = ROOT / "tests" / "data" / "dumps" / "gloo"


def read(folder: Path) -> dict[str, Any]:
    parquet = pytest.importorskip("pyarrow.parquet")
    return {name: parquet.read_table(folder / f"{name}.parquet") for name in TABLES}


def test_tables_of_a_small_job(tmp_path: Path) -> None:
    odd = entry(1, input_sizes=[[5]], output_sizes=[[5]], frames=frames(1, 2, 3))
    dumps = [dump(), dump([entry(0), odd]), dump()]
    results = load_many([(torch_pickle(item), n, "x") for n, item in enumerate(dumps)])
    loaded = Loaded([item for item in results if not isinstance(item, Exception)])
    paths = write_database(loaded, tmp_path / "out")
    assert [path.name for path in paths] == [f"{name}.parquet" for name in TABLES]
    tables = read(tmp_path / "out")
    assert tables["groups"].to_pylist() == [
        {"group_id": 0, "name": "0", "description": "default_pg", "size": 2}
    ]
    assert tables["memberships"].to_pylist() == [
        {"group_id": 0, "rank": rank, "group_rank": rank, "has_dump": True} for rank in (0, 1)
    ]
    collectives = tables["collectives"].to_pylist()
    assert [row["seq"] for row in collectives] == [1, 2, 3]
    assert [row["entered"] for row in collectives] == [3, 3, 2]
    assert [row["mismatch"] for row in collectives] == [None, "size", None]
    calls = tables["calls"].to_pylist()
    assert len(calls) == 8
    assert calls[0]["op"] == "all_reduce"
    assert calls[0]["input_sizes"] == [[4, 2]]
    assert calls[0]["started_ns"] is None
    assert calls[0]["duration_ms"] is None
    assert calls[0]["src"] is None
    stacks = tables["stacks"].to_pylist()
    last = [row["line"] for row in stacks if row["stack_id"] == calls[4]["stack_id"]]
    assert last == [1, 2, 3]
    assert {call["collective_id"] for call in calls} == {
        row["collective_id"] for row in collectives
    }


def test_tables_of_torch_itself(tmp_path: Path) -> None:
    write_database(load_folder(GLOO / "stacks"), tmp_path)
    tables = read(tmp_path)
    assert tables["calls"].num_rows == 44
    assert tables["collectives"].num_rows == 13
    assert {row["name"]: row["description"] for row in tables["groups"].to_pylist()} == {
        "0": "default_pg",
        "1": "left",
        "2": "right",
    }
    assert tables["memberships"].num_rows == 0  # gloo writes no members


def test_nothing_makes_empty_tables(tmp_path: Path) -> None:
    write_database(Loaded(), tmp_path)
    assert all(table.num_rows == 0 for table in read(tmp_path).values())


def test_the_schema_is_documented(tmp_path: Path) -> None:
    write_database(load_folder(GLOO / "plain"), tmp_path)
    text = (ROOT / "docs" / "entries-database.md").read_text()
    for name, table in read(tmp_path).items():
        section = re.search(rf"## {name}\n(.*?)(?=\n## |\Z)", text, re.DOTALL)
        assert section is not None, name
        documented = re.findall(r"^\| `(\w+)` \| ([^|]+?) \|", section.group(1), re.MULTILINE)
        assert documented == [(field.name, _kind(str(field.type))) for field in table.schema]


def _kind(kind: str) -> str:
    return re.sub(r"list<(?:item|element): (.*)>", lambda m: f"list of {_kind(m.group(1))}", kind)


def test_without_pyarrow_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match="pyarrow") as caught:
        write_database(Loaded(), tmp_path)
    assert "hanglab[tables]" in caught.value.advice
