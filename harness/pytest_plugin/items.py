"""Collected items: files with scenarios, and one item for each fault and each control."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from hanglab.harness.errors import HanglabError
from hanglab.harness.jobs.backend_choice import backends_for
from hanglab.harness.jobs.outcome import Judgement, Outcome
from hanglab.harness.jobs.plan import Options, refusal_of, requests_of
from hanglab.harness.jobs.resources import least_gpus
from hanglab.harness.jobs.results import stored
from hanglab.harness.jobs.run import Result, RunRequest
from hanglab.harness.launchers.selection import LAUNCHERS, launcher_of
from hanglab.harness.pytest_plugin.failure import (
    OutcomeFailure,
    describe_failure,
    representation,
)
from hanglab.harness.pytest_plugin.markers import NEEDS_OF_MARKERS
from hanglab.harness.pytest_plugin.reporting import (
    Property,
    asked_properties,
    result_properties,
)
from hanglab.harness.scenarios.declaration import Scenario
from hanglab.harness.scenarios.packs import in_packs, packs_of

if TYPE_CHECKING:
    from hanglab.harness.pytest_plugin.session import PluginSession

#: Patience, in seconds, from which a scenario counts as slow.
_PATIENT_S = 5.0


class ScenarioFolder(pytest.Collector):
    """Scenarios that come with hanglab or with a pack, wherever they are installed."""

    def __init__(self, *, plugin: PluginSession, folder: Path, **given: Any) -> None:
        super().__init__(**given)
        self._plugin = plugin
        self._folder = folder

    def collect(self) -> Iterator[pytest.Collector]:
        for path in self._plugin.scenario_files(self._folder):
            name = path.relative_to(self._folder).as_posix()
            yield ScenarioFile.from_parent(
                self, path=path, name=name, nodeid=f"{self.name}/{name}", plugin=self._plugin
            )


class ScenarioFile(pytest.File):
    def __init__(self, *, plugin: PluginSession, **given: Any) -> None:
        super().__init__(**given)
        self._plugin = plugin

    def collect(self) -> Iterator[ScenarioItem]:
        found = self._plugin.read(self.path)
        problems = [broken.describe() for broken in found.broken]
        items: list[ScenarioItem] = []
        for scenario in in_packs(found.scenarios, self._plugin.options.packs):
            namesake = self._plugin.claim(scenario)
            if namesake is not None:
                problems.append(
                    f"Two scenarios are called {scenario.name}: "
                    f"{namesake.source}:{namesake.line} and {scenario.source}:{scenario.line}.  "
                    "Rename one."
                )
                continue
            try:
                items += self._items(scenario)
            except HanglabError as failure:
                problems.append(f"{failure}  {failure.advice}")
        if problems:
            raise self.CollectError("\n".join(problems))
        yield from items

    def _items(self, scenario: Scenario) -> Iterator[ScenarioItem]:
        """Raises PoolTooSmall where the run may not use the GPUs that it needs."""
        options = self._plugin.options
        worlds = options.world_sizes or (scenario.world_size,)
        launchers = dict.fromkeys(launcher_of(scenario.needs, name) for name in options.launchers)
        backends = backends_for(scenario, options.backends)
        for backend, launcher, world_size in product(backends, launchers, worlds):
            asked = Options(
                backend=backend, launcher=launcher, world_size=world_size, repeat=options.repeat
            )
            if backend in scenario.backends:
                self._plugin.runner.allotment.refusal(scenario, backend)
            for request in requests_of(scenario, asked):
                words = [request.variant, backend, launcher, str(world_size)]
                if options.repeat > 1:
                    words.append(f"seed{request.seed}")
                yield ScenarioItem.from_parent(
                    self,
                    name=f"{scenario.name}[{'-'.join(words)}]",
                    plugin=self._plugin,
                    asked=request,
                )


class ScenarioItem(pytest.Item):
    """One job: the fault of a scenario, or its control."""

    def __init__(self, *, plugin: PluginSession, asked: RunRequest, **given: Any) -> None:
        super().__init__(**given)
        self._plugin = plugin
        self.asked = asked
        #: What ``results.json`` says of it.
        self.entry: dict[str, Any] | None = None
        scenario = asked.scenario
        self.user_properties += asked_properties(asked)
        for mark in _marks(scenario, asked.backend, asked.launcher):
            self.add_marker(mark)
        for pack in packs_of(scenario):
            self.add_marker(plugin.pack_marker(pack))
        if scenario.expect is not None:
            self.extra_keyword_matches |= {str(scenario.category)}
            if (cause := scenario.expect.cause) is not None:
                self.extra_keyword_matches |= {cause.value}

    @property
    def lasting_name(self) -> str:
        """The item without its seed: repetitions take equally long."""
        return self.nodeid.rsplit("-seed", 1)[0]

    def setup(self) -> None:
        refusal = refusal_of(self.asked.scenario, self.asked)
        if refusal is not None:
            judgement = Judgement(Outcome.SKIPPED, refusal)
            self._note(Result(self.asked.scenario.name, self.asked, judgement))
            self._tell([("outcome", Outcome.SKIPPED.value)])
            pytest.skip(refusal)

    def runtest(self) -> None:
        try:
            result, waited = self._plugin.runner.run(self.asked)
        except KeyboardInterrupt:
            # pytest makes no report of it.
            if (cut_short := self._plugin.runner.cut_short) is not None:
                self._note(cut_short)
                self._tell(result_properties(cut_short))
                self._plugin.tally.add_cut_short(self.user_properties, self.entry)
            raise
        for reason in waited:
            self.add_report_section("call", "hanglab", reason)
        self.settle(result)

    def settle(self, result: Result) -> None:
        """Raises OutcomeFailure unless the job came out as it must."""
        self._note(result)
        self._tell(result_properties(result))
        if result.outcome is not Outcome.PASS:
            raise OutcomeFailure(result)

    def _tell(self, properties: list[Property]) -> None:
        """In place of what an earlier try of the item told."""
        names = {name for name, _ in properties}
        kept = [one for one in self.user_properties if one[0] not in names]
        self.user_properties[:] = [*kept, *properties]

    def _note(self, result: Result) -> None:
        self.entry = msgspec.to_builtins(stored(result))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        failure = excinfo.value
        if isinstance(failure, OutcomeFailure):
            text = describe_failure(failure.result)
        elif isinstance(failure, HanglabError):
            text = f"harness error: {failure}\n{failure.advice}"
        else:
            return super().repr_failure(excinfo, style)
        scenario = self.asked.scenario
        return representation(excinfo, text, scenario.source, scenario.line)

    def reportinfo(self) -> tuple[Path, int, str]:
        scenario = self.asked.scenario
        return scenario.source, scenario.line - 1, self.name


def _marks(scenario: Scenario, backend: str, launcher: str) -> Iterator[pytest.MarkDecorator]:
    yield pytest.mark.hanglab
    gpus = least_gpus(scenario, backend)
    if gpus > 1:
        yield pytest.mark.multi_gpu(gpus)
    else:
        yield pytest.mark.one_gpu if gpus else pytest.mark.cpu
    needs = {*scenario.needs, *LAUNCHERS[launcher].needs}
    yield from (getattr(pytest.mark, marker) for marker in NEEDS_OF_MARKERS if marker in needs)
    if LAUNCHERS[launcher].cold or scenario.hang_after_s >= _PATIENT_S:
        yield pytest.mark.slow
