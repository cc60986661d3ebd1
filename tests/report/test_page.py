"""Pages as files: whole without scripts, without requests, and safe with strangers' names."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import pytest
from pages import PageText, json_of, page_of, unpacked

from hanglab.harness.cli import main
from hanglab.harness.report.page.shown_text import LONGEST

HOSTILE = (
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(2)>",
    "{{ 7 * 7 }} {% raw %}",
    "\u202egnp.exe\u202c",
    "\x1b[31mred\x07\x00",
    "a" * 10_000,
    "\udc80\udcff",
    "<!--",
)


def test_the_verdict_is_there_without_scripts(tmp_path: Path) -> None:
    text = PageText(page_of(unpacked("local/skipped_collective.fault", tmp_path)))
    verdict = " ".join(text.sections["verdict"].split())
    assert "hung" in verdict and "skipped_collective" in verdict and "rank 1" in verdict
    assert "ranks 0, 2, 3" in " ".join(text.sections["waits"].split())
    assert "broadcast" in text.sections["side"]
    assert "all_reduce" in text.sections["stacks"]


def test_nothing_is_fetched_from_anywhere(tmp_path: Path) -> None:
    text = PageText(page_of(unpacked("local/skipped_collective.fault", tmp_path)))
    for tag, attributes in text.tags:
        for name in ("src", "href", "action", "srcset", "data"):
            value = attributes.get(name) or "#"
            assert value.startswith("#"), (tag, attributes)
    assert "@import" not in text.scripts["style"] and "url(" not in text.scripts["style"]
    policies = [
        attributes["content"] or ""
        for tag, attributes in text.tags
        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    assert len(policies) == 1 and policies[0].startswith("default-src 'none'")
    assert "unsafe-inline" not in policies[0].partition("script-src")[2]


def test_data_can_be_taken_out_as_json(tmp_path: Path) -> None:
    data = json_of(page_of(unpacked("local/skipped_collective.fault", tmp_path)))
    assert data["schema"] == "hanglab.page/1"
    assert data["verdict"]["schema"] == "hanglab.verdict/1"
    assert data["verdict"]["culprits"] == [1]


def hostile_dumps(folder: Path) -> Path:
    """Two ranks of which one has left an operation out, with names that are meant to do harm."""
    folder.mkdir()
    for rank in range(2):
        entries = []
        for number in range(12):
            bad = HOSTILE[number % len(HOSTILE)]
            entries.append(entry(number, bad, skipped=bool(rank) and number >= 8))
        (folder / f"rank_{rank}").write_bytes(pickle.dumps(hostile_dump(entries), 2))
    return folder


def entry(number: int, bad: str, *, skipped: bool) -> dict[str, Any]:
    done = number < 10
    return {
        "frames": [{"name": bad, "filename": f"/srv/{bad}.py", "line": 10 + skipped}],
        "record_id": number,
        "pg_id": 0,
        "process_group": ("0", f"group {HOSTILE[0]}"),
        "collective_seq_id": number + 1,
        "p2p_seq_id": 0,
        "op_id": number + 1,
        "profiling_name": "nccl:all_gather" if skipped and not done else "nccl:all_reduce",
        "time_created_ns": 1_700_000_000_000_000_000 + number * 1_000_000,
        "input_sizes": [[4, 2]],
        "input_dtypes": ["Float"],
        "output_sizes": [[4, 2]],
        "output_dtypes": ["Float"],
        "state": "completed" if done else "scheduled",
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": None,
        "retired": done,
        "timeout_ms": 600_000,
        "is_p2p": False,
    }


def hostile_dump(entries: list[dict[str, Any]]) -> dict[str, Any]:
    status = {
        "last_enqueued_collective": 12,
        "last_started_collective": -1,
        "last_completed_collective": 10,
    }
    return {
        "version": "2.10",
        "pg_config": {"0": {"name": "0", "desc": f"group {HOSTILE[0]}", "ranks": "[0, 1]"}},
        "comm_lib_version": "2.27.3",
        "pg_status": {"0": status},
        "entries": entries,
    }


def test_names_of_strangers_are_text(tmp_path: Path) -> None:
    page = page_of(hostile_dumps(tmp_path / "dumps"))
    text = PageText(page)
    assert [tag for tag, _ in text.tags].count("script") == 3
    assert not [attributes for _, attributes in text.tags if "onerror" in attributes]
    assert not [tag for tag, _ in text.tags if tag == "img"]
    assert "<script>alert(1)</script>" in "".join(text.sections.values())
    assert "49" not in text.sections["stacks"].split()
    body = "".join(text.sections.values())
    for hidden in "\u202e\u202c\x1b\x07\x00":
        assert hidden not in page
    assert "\\u202e" in body
    page.encode("utf-8")
    assert json_of(page)["schema"] == "hanglab.page/1"
    # Ten thousand characters do not drown the others.
    assert max(map(len, re.findall("a+", body))) <= LONGEST


def test_the_terminal_shows_them_and_obeys_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dumps = str(hostile_dumps(tmp_path / "dumps"))
    for command in (["entries", "--stacks", dumps], ["analyze", "-v", dumps]):
        assert main(command) == 0
        printed = capsys.readouterr().out
        assert not [one for one in printed if one != "\n" and not one.isprintable()], command
        assert "<script>alert(1)</script>" in printed
        assert max(map(len, printed.splitlines())) <= 150 and len(printed) < 20_000


def test_a_page_that_exists_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = unpacked("local/skipped_collective.fault", tmp_path)
    target = tmp_path / "page.html"
    target.write_text("mine")
    assert main(["report", str(job), "-o", str(target)]) == 64
    assert target.read_text() == "mine"
    assert "exists" in capsys.readouterr().err
    assert main(["report", str(job), "-o", str(target), "--force"]) == 0
    assert "skipped_collective" in target.read_text()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("package", ["jinja2", "plotly"])
def test_a_missing_extra_is_named(
    package: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    job = unpacked("local/skipped_collective.fault", tmp_path)
    for name in (package, f"{package}.offline"):
        monkeypatch.setitem(__import__("sys").modules, name, None)
    assert main(["report", str(job), "-o", str(tmp_path / "page.html")]) == 4
    told = capsys.readouterr().err
    assert package in told and "hanglab[report]" in told
    assert not (tmp_path / "page.html").exists()


def test_what_is_no_evidence_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path), "-o", str(tmp_path / "page.html")]) == 4
    assert "holds no Flight Recorder dump" in capsys.readouterr().err
