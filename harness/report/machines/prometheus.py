"""A verdict in Prometheus' text format, for the textfile collector of its node exporter."""

from __future__ import annotations

from collections.abc import Mapping

from hanglab.harness.report.explanation.parts import Explanation


def prometheus(told: Explanation) -> str:
    """Gauges of one verdict; a file of them replaces the one before."""
    about = {"status": told.status, "cause": told.cause or ""}
    lines = _gauge("verdict_info", "The verdict, 1 with its words as labels.", [(about, 1)])
    lines += _gauge("verdict_confidence", "Probability of the verdict.", [({}, told.confidence)])
    lines += _gauge("ranks", "Ranks that the job has, as far as is known.", [({}, told.ranks)])
    lines += _gauge("waiting_ranks", "Ranks that wait.", [({}, len(told.waiting))])
    if told.waited_s is not None:
        lines += _gauge("waited_seconds", "Time that they have waited.", [({}, told.waited_s)])
    culprits = [
        ({"rank": str(one.rank), "host": one.host, "pid": str(one.pid or "")}, 1.0)
        for one in told.processes
    ]
    lines += _gauge("culprit", "A rank that is the cause, and its process.", culprits)
    return "\n".join(lines) + "\n"


def _gauge(name: str, about: str, values: list[tuple[dict[str, str], float]]) -> list[str]:
    if not values:
        return []
    lines = [f"# HELP hanglab_{name} {about}", f"# TYPE hanglab_{name} gauge"]
    return lines + [f"hanglab_{name}{_labels(labels)} {value:g}" for labels, value in values]


def _labels(labels: Mapping[str, str]) -> str:
    words = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{words}}}" if words else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
