"""Writes the JSON Schemas that tests hold manifests against, from the clients' generated models.

``python -m tools.kubernetes_schemas`` fetches the packages below by pip and writes
``tests/kubernetes/schemas``.  The models are generated from the API's own OpenAPI documents:
fields, their types, and which are required; what servers check besides (formats, ranges,
references) is in none of them.  Fields that no model has are refused, as a server does that
validates strictly.
"""

from __future__ import annotations

import ast
import importlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "tests" / "kubernetes" / "schemas"
PACKAGES = ("kubernetes==37.0.1", "kubeflow-trainer-api==2.3.0", "kubeflow-training==1.9.4")
_LICENCE = "Generated from models of {}, which are under the Apache License 2.0."
#: Words of a schema that say nothing about what is valid.
_WORDS = ("title", "description", "default", "examples")
#: What servers write, and what nobody puts into a manifest by hand.
_SERVERS = ("status", "managedFields")

#: Before names that Kubernetes' own client has without it.
_AUTOSCALING = "K8sIoApiAutoscaling"

Schema = dict[str, Any]


def main() -> None:
    """Writes a file for each kind of manifest."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "install", "-qq", "--no-deps", "--target", folder]
        subprocess.run([*command, *PACKAGES], check=True)
        sys.path.insert(0, folder)
        client = importlib.import_module("kubernetes.client")
        jobset = importlib.import_module("kubeflow_trainer_api.models.jobset_v1alpha2_job_set")
        for kind in ("DaemonSet", "Job", "Pod", "Service"):
            _write(kind, _of_model(getattr(client, f"V1{kind}")), PACKAGES[0])
        _write("JobSet", _of_model(jobset.JobsetV1alpha2JobSet), PACKAGES[1])
        models = Path(folder) / "kubeflow" / "training" / "models"
        _write("PyTorchJob", _of_sources(models, client), f"{PACKAGES[2]} and {PACKAGES[0]}")


def _of_model(model: Any) -> Schema:
    schema: Schema = _plain(model.model_json_schema(by_alias=True))
    return schema


def _plain(value: Any) -> Any:
    """A schema without words, and with no room for null and for unknown fields."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if not isinstance(value, dict):
        return value
    if "actual_instance" in value.get("properties", {}):
        # The generator's word for a text or a number.
        return _plain(value["properties"]["actual_instance"])
    options = value.get("anyOf")
    if options is not None:
        options = [one for one in options if one != {"type": "null"}]
        if len(options) == 1:
            return _plain(options[0])
        return {"anyOf": [_plain(one) for one in options]}
    schema = {
        key: ({name: _plain(one) for name, one in found.items()} if key in _MAPS else _plain(found))
        for key, found in value.items()
        if key not in _WORDS
    }
    if "properties" in schema:
        schema["additionalProperties"] = False
    return schema


#: Keys below which names stand, and not words of the language.
_MAPS = ("properties", "$defs")


def _of_sources(folder: Path, client: Any) -> Schema:
    """The schema of a PyTorchJob, whose models are of a generator that made no schemas.

    What they have of Kubernetes itself is taken from its own client.
    """
    by_name = dict(_model_in(path) for path in folder.glob("kubeflow_org_v1_*.py"))
    definitions: Schema = {}
    wanted = ["KubeflowOrgV1PyTorchJob"]
    while wanted:
        name = wanted.pop()
        if name in definitions:
            continue
        if name in by_name:
            definitions[name] = by_name[name]
            wanted += _named(by_name[name])
            continue
        whole = _of_model(getattr(client, name.removeprefix(_AUTOSCALING)))
        definitions.update(whole.pop("$defs", {}))
        definitions[name] = whole
    return {"$defs": definitions, "$ref": "#/$defs/KubeflowOrgV1PyTorchJob"}


def _model_in(path: Path) -> tuple[str, Schema]:
    """Name and schema of the one class of a module."""
    [kind] = [node for node in ast.parse(path.read_bytes()).body if isinstance(node, ast.ClassDef)]
    values = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in kind.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Dict)
    }
    names = values["attribute_map"]
    required = [names[field] for field in names if _is_required(kind, field)]
    schema: Schema = {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            names[field]: _typed(text) for field, text in values["openapi_types"].items()
        },
    }
    return kind.name, {**schema, **({"required": required} if required else {})}


def _is_required(kind: ast.ClassDef, field: str) -> bool:
    """True if the setter refuses None."""
    setters = [n for n in kind.body if isinstance(n, ast.FunctionDef) and n.name == field]
    return any("must not be `None`" in ast.unparse(one) for one in setters)


def _typed(text: str) -> Schema:
    """Schema of a type as the generator writes it, such as ``dict(str, list[V1Pod])``."""
    simple = {
        "str": "string", "int": "integer", "bool": "boolean", "float": "number",
        "datetime": "string", "Quantity": "string",
    }  # fmt: skip
    if text in simple:
        return {"type": simple[text]}
    if text == "object":
        return {}
    if text.startswith("dict("):
        return {"type": "object", "additionalProperties": _typed(text[5:-1].split(", ", 1)[1])}
    if text.startswith("list["):
        return {"type": "array", "items": _typed(text[5:-1])}
    return {"$ref": f"#/$defs/{text}"}


def _named(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if "$ref" in schema:
            yield schema["$ref"].rpartition("/")[2]
        for one in schema.values():
            yield from _named(one)
    elif isinstance(schema, list):
        for one in schema:
            yield from _named(one)


def _write(kind: str, schema: Schema, packages: str) -> None:
    """Writes a schema, without what the servers write and what nothing leads to."""
    definitions = schema.get("$defs", {})
    for one in (schema, *definitions.values()):
        for name in _SERVERS:
            one.get("properties", {}).pop(name, None)
    reached: set[str] = set()
    wanted = [name for key, one in schema.items() if key != "$defs" for name in _named({key: one})]
    while wanted:
        if (name := wanted.pop()) not in reached:
            reached.add(name)
            wanted += _named(definitions[name])
    schema = {
        "$comment": _LICENCE.format(packages),
        **schema,
        "$defs": {name: definitions[name] for name in sorted(reached)},
    }
    FOLDER.mkdir(parents=True, exist_ok=True)
    text = json.dumps(schema, separators=(",", ":"), sort_keys=True)
    (FOLDER / f"{kind}.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
