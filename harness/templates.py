"""Templates of what users write: a heuristic with its cause, a scenario, a pack of scenarios."""

from __future__ import annotations

HEURISTIC = '''\
"""A rank that rests in its own code, looking for something again and again, while its peers wait.

`hanglab eval --heuristic {name}.py` says what it changes, Case by Case.
"""

from collections.abc import Iterator

from hanglab.analyzer.catalogue import Category, CauseRow, Observation, Stage, register
from hanglab.analyzer.facts.case_facts import CaseFacts, collective_ref
from hanglab.analyzer.proposal import Proposal, propose
from hanglab.analyzer.verdict import Evidence

{constant} = register(
    CauseRow(
        "{name}",
        Category.RESOURCE,
        # The cause of the first stage at which one is proved leads the verdict.
        Stage.OUTSIDE,
        "Find out what the line waits for, and give that wait a limit.",
        requires=Observation.STANDSTILL,
    )
)


def find_{name}(facts: CaseFacts) -> Iterator[Proposal]:
    for rank, view in facts.ranks.items():
        location = view.location()
        awaited = facts.awaited(rank)
        if location is None or awaited is None or not facts.in_no_operation(rank):
            continue
        # Kernel functions in which its main thread was seen asleep; one look may find it awake.
        own = [sample.wchan for sample in view.processes if sample.kind == "rank"]
        sleeps = [place for place in own if "nanosleep" in place]
        if sleeps and view.position.innermost_is_user:
            yield propose(
                facts,
                {constant},
                [rank],
                confidence=0.98,
                summary=f"Rank {{rank}} sleeps in {{location.function}}, again and again.",
                evidence=[Evidence("process_state", rank, f"sleeps in {{sleeps[-1]}}")],
                location=location,
                collective=collective_ref(awaited),
            )
'''

SCENARIO = '''\
"""Rank 1 leaves out one of the step's operations."""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


# `hanglab run {name}.py` runs it with its fault and without; the verdicts must be as expected.
@scenario(
    world_size=4,
    expect=Expect(Cause.SKIPPED_COLLECTIVE, culprits={{1}}, group="default_pg"),
)
def {name}(job):
    model = torch.nn.Linear(64, 8).to(job.device)
    for step in job.steps(20):
        with job.section("forward_backward"):
            model(job.batch(64)).sum().backward()
        # The line with the bug is marked FAULT; the culprit stands at SEEN when it is captured.
        if not (job.faulty and job.rank == 1 and step == 5):  # FAULT
            dist.all_reduce(model.weight.grad)
        dist.broadcast(torch.zeros(1, device=job.device), src=0)  # SEEN
        model.zero_grad()
'''

#: Files of a pack by path; its name and package are filled in, and a scenario comes to them.
PACK = {
    "pyproject.toml": """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "hanglab-pack-{name}"
version = "0.1.0"
description = "Hangs of {name}, for hanglab."
dependencies = ["hanglab[run]"]

# hanglab finds the pack by this: its name, and the package whose folder it is.
[project.entry-points."hanglab.packs"]
{name} = "{package}"

[tool.hatch.build.targets.wheel]
packages = ["{package}"]
""",
    "README.md": """\
# Hangs of {name}

    pip install --editable .
    hanglab packs
    hanglab run --pack {name}
    pytest --hanglab-pack {name}

Each file below `{package}/` declares a scenario: a training script with its fault, its control, and
the verdict that it must get. The first sentence of `{package}/__init__.py` describes the pack.
""",
    "{package}/__init__.py": """\
\"\"\"Hangs of {name}.\"\"\"
""",
}
