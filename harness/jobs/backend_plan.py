"""Plan of a run on several backends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from hanglab.harness.jobs.backend_choice import backends_for
from hanglab.harness.jobs.plan import Options, plan
from hanglab.harness.jobs.run import Result, RunRequest
from hanglab.harness.scenarios.declaration import Scenario
from hanglab.harness.scenarios.discovery import Found


def plan_on_backends(
    found: Found,
    options: Options,
    backends: Sequence[str],
    *,
    first: bool = False,
    choose: Callable[[Iterable[Scenario], Options], list[Scenario]] | None = None,
) -> tuple[list[RunRequest], list[Result]]:
    """Jobs to run over several backends, and the results of those that cannot be; of its shard.

    Each scenario runs on all that it is for; with ``first``, on the first of them alone.
    ``choose`` says of each backend which of its scenarios are to run.
    """
    requests: list[RunRequest] = []
    settled: list[Result] = []
    for backend in backends:
        here = replace(options, backend=backend)
        own = [
            one for one in found.scenarios if backend in backends_for(one, backends, first=first)
        ]
        broken = found.broken if backend == backends[0] else []
        asked, refused = plan(Found(choose(own, here) if choose else own, broken), here)
        requests += asked
        settled += refused
    if options.shard is not None:
        names = [request.scenario.name for request in requests] + [one.name for one in settled]
        mine = options.shard.share_of(names)
        requests = [request for request in requests if request.scenario.name in mine]
        settled = [one for one in settled if one.name in mine]
    return requests, settled
