"""A manifest as YAML, with the rights that it asks for said on top."""

from __future__ import annotations

import json

from hanglab.harness.errors import MissingExtra
from hanglab.harness.kubernetes.manifests import pod_specs
from hanglab.harness.kubernetes.pod_security import Manifest, level_of

_WHY = {
    "SYS_PTRACE": "stacks and memory of ranks are read from outside by ptrace",
    "DAC_READ_SEARCH": "their environment, by which ranks are told, belongs to another user",
}


def text_of(manifest: Manifest) -> str:
    """Raises MissingExtra where PyYAML is not there."""
    try:
        import yaml
    except ImportError:
        raise MissingExtra(
            "Manifests need the Python package `PyYAML`.", "pip install 'hanglab[kubernetes]'"
        ) from None

    # A copy, in which nothing is there twice: it would become an anchor and its aliases.
    copied = json.loads(json.dumps(manifest))
    body: str = yaml.safe_dump(copied, sort_keys=False, width=100)
    return "".join(f"# {line}\n" for line in _head(manifest)) + body


def _head(manifest: Manifest) -> list[str]:
    [spec, *_] = pod_specs(manifest)
    level, reasons = level_of(spec)
    lines = [f"Pod Security Standard: {level}" + (f" ({'; '.join(reasons)})" if reasons else "")]
    added = {
        right
        for container in (*spec.get("initContainers", ()), *spec["containers"])
        for right in container["securityContext"]["capabilities"].get("add", ())
    }
    lines += [f"{right}: {_WHY[right]}" for right in sorted(added, reverse=True)]
    if spec.get("hostPID"):
        lines.append("hostPID: ranks are processes of other pods")
    return lines
