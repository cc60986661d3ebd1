"""Schemas of the API, and what else a server would refuse."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import jsonschema

SCHEMAS = Path(__file__).parent / "schemas"
HANGLAB = [sys.executable, "-m", "hanglab.harness.cli"]


def schema_of(kind: str) -> dict[str, Any]:
    return json.loads((SCHEMAS / f"{kind}.json").read_text())


def check(manifest: dict[str, Any]) -> None:
    """Raises ValidationError for what the models do not have, or have as another type."""
    jsonschema.Draft202012Validator(schema_of(manifest["kind"])).validate(manifest)
