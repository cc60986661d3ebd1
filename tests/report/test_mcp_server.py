"""The server for assistants, asked over its own protocol by the SDK's client."""

from __future__ import annotations

import asyncio
import json
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from installed import needs

pytestmark = needs("mcp", "pip install 'hanglab[mcp]'")

CORPUS = Path(__file__).parents[1] / "corpus" / "local"
COMMAND = ["-m", "hanglab.harness.cli", "mcp"]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one Case in it, beside a secret."""
    outside = tmp_path_factory.mktemp("outside")
    (outside / "secret.txt").write_text("not for assistants")
    folder = outside / "runs"
    with tarfile.open(CORPUS / "skipped_collective.fault.tar.xz") as archive:
        archive.extractall(folder / "night" / "case")
    (folder / "night" / "case" / "way_out").symlink_to(outside)
    newer = folder / "of a newer hanglab"
    newer.mkdir()
    manifest = {"format": 1000, "recorder": "", "written": {"wall_ns": 1, "mono_ns": 1}}
    (newer / "manifest.json").write_text(json.dumps(manifest))
    return folder


def asked(root: Path, tool: str, **given: Any) -> tuple[bool, Any]:
    """(True if it is an error, the answer) of one call."""
    from mcp import Client

    from hanglab.harness.report.machines.mcp_server import make_server

    async def ask() -> Any:
        async with Client(make_server(root)) as client:
            return await client.call_tool(tool, given)

    answer = asyncio.run(ask())
    text = "".join(part.text for part in answer.content)
    if answer.is_error:
        return True, text
    content = answer.structured_content
    return False, content.get("result", content) if content is not None else json.loads(text)


def test_tools_only_read(root: Path) -> None:
    from mcp import Client

    from hanglab.harness.report.machines.mcp_server import make_server

    async def tools() -> Any:
        async with Client(make_server(root)) as client:
            return (await client.list_tools()).tools

    found = asyncio.run(tools())
    assert {one.name for one in found} >= {"list_cases", "analyze", "read_evidence"}
    assert all(one.annotations.read_only_hint and one.description for one in found)


def test_an_assistant_starts_the_command(root: Path) -> None:
    from mcp import Client, StdioServerParameters

    async def cases() -> Any:
        server = StdioServerParameters(command=sys.executable, args=[*COMMAND, str(root)])
        async with Client(server) as client:
            return await client.call_tool("list_cases", {})

    answer = asyncio.run(cases())
    assert not answer.is_error and "night/case" in answer.content[0].text


def test_a_case_is_found_analysed_and_read(root: Path) -> None:
    error, cases = asked(root, "list_cases")
    assert not error and [one["path"] for one in cases] == ["night/case", "of a newer hanglab"]
    assert cases[0]["world_size"] == 4
    assert "newer" in cases[1]["unusable"]
    error, told = asked(root, "analyze", path="night/case")
    assert not error and told["cause"] == "skipped_collective" and told["culprits"] == [1]
    assert told["headline"].startswith("Rank 1 left out all_reduce")
    error, files = asked(root, "list_evidence", path="night/case")
    assert not error and "job.json" in {one["file"] for one in files}
    assert not [one for one in files if "secret" in one["file"]]
    error, content = asked(root, "read_evidence", path="night/case", file="job.json")
    assert not error and json.loads(content["text"])["world_size"] == 4


@pytest.mark.parametrize(
    ("tool", "given", "words"),
    [
        ("analyze", {"path": "../"}, "outside"),
        ("analyze", {"path": "no/such"}, "list_cases"),
        ("read_evidence", {"path": "night/case", "file": "../../../secret.txt"}, "outside"),
        ("read_evidence", {"path": "night/case", "file": "way_out/secret.txt"}, "outside"),
        ("read_evidence", {"path": "night/case", "file": "manifest"}, "list_evidence"),
        ("explain_cause", {"cause": "slow_inptu"}, "Did you mean slow_input"),
    ],
)
def test_what_cannot_be_read_is_said_in_a_sentence(
    root: Path, tool: str, given: dict[str, str], words: str
) -> None:
    error, text = asked(root, tool, **given)
    assert error and words in text and "Traceback" not in text and "not for" not in text
