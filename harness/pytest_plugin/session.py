"""One run of pytest that has to do with hanglab: its hooks, once somebody has asked."""

from __future__ import annotations

import fnmatch
from collections.abc import Generator, Iterator
from functools import cached_property
from pathlib import Path

import pytest

from hanglab.harness.jobs.run_folder import ArtifactsError
from hanglab.harness.pytest_plugin import markers, ordering, reporting, workers
from hanglab.harness.pytest_plugin.items import ScenarioFile, ScenarioFolder, ScenarioItem
from hanglab.harness.pytest_plugin.options import read_options
from hanglab.harness.pytest_plugin.running import Runner
from hanglab.harness.scenarios import discovery
from hanglab.harness.scenarios.declaration import Scenario
from hanglab.harness.scenarios.discovery import Found
from hanglab.harness.scenarios.packs import installed_packs


class PluginSession:
    """Registered as a plugin when first asked for."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.options = read_options(config)
        self.runner = Runner(config, several=self.options.combinations > 1)
        if config.option.hanglab_artifacts is not None and not workers.is_worker(config):
            _require_writable(self.runner.folder.path.parent)
        launchers = self.options.launchers
        self.tally = reporting.Tally(
            self.runner.folder.path,
            launchers[0] if len(launchers) == 1 else None,
            self.options.shard,
        )
        self._found: dict[Path, Found] = {}
        self._names: dict[str, Scenario] = {}
        self._pack_markers: set[str] = set()
        if config.getoption("dist", "no") == "load" and config.option.maxschedchunk is None:
            # Items take seconds, so a worker has no more than the next one in stock.
            config.option.maxschedchunk = 1

    # Collection

    def read(self, path: Path) -> Found:
        if path not in self._found:
            self._found[path] = discovery.read_file(path)
        return self._found[path]

    def declares(self, path: Path) -> bool:
        found = self.read(path)
        return bool(found.scenarios or found.broken)

    def collects_any_name(self, path: Path) -> bool:
        """True for a file with scenarios below the paths that `--hanglab` was given.

        pytest comes to no other files then.  One that it takes for tests by its
        name stays one of tests, which may declare scenarios beside them.
        """
        return self.options.any_name and not self._named_as_test(path) and self.declares(path)

    @cached_property
    def project(self) -> Path:
        return discovery.project_folder()

    @cached_property
    def _asked_within_project(self) -> bool:
        """True where the paths that pytest was given choose among hanglab's own scenarios."""
        here = self.config.invocation_params.dir
        given = [Path(here, word.split("::", 1)[0]).resolve() for word in self.config.args]
        return any(path.is_relative_to(self.project.resolve()) for path in given)

    def taken_by_pytest(self, path: Path, parent: pytest.Collector) -> bool:
        """True where pytest itself makes a module of the file."""
        return parent.session.isinitpath(path) or self._named_as_test(path)

    def _named_as_test(self, path: Path) -> bool:
        patterns = self.config.getini("python_files")
        return any(fnmatch.fnmatch(path.name, pattern) for pattern in patterns)

    def file(self, parent: pytest.Collector, path: Path) -> ScenarioFile:
        made: ScenarioFile = ScenarioFile.from_parent(parent, path=path, plugin=self)
        return made

    def pack_marker(self, pack: str) -> pytest.MarkDecorator:
        """The marker of a pack, which `--strict-markers` has to know before it is used."""
        name = f"pack_{pack}"
        if name not in self._pack_markers:
            self._pack_markers.add(name)
            self.config.addinivalue_line("markers", f"{name}: a scenario of that pack")
        marker: pytest.MarkDecorator = getattr(pytest.mark, name)
        return marker

    def claim(self, scenario: Scenario) -> Scenario | None:
        """Another scenario of the run that has the same name already, if there is one."""
        first = self._names.setdefault(scenario.name, scenario)
        same = (first.source, first.line) == (scenario.source, scenario.line)
        return None if same else first

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        report = yield
        if isinstance(collector, pytest.Session) and self.options.with_project:
            if report.passed and not self._asked_within_project:
                folders = [
                    ScenarioFolder.from_parent(collector, name=name, folder=folder, plugin=self)
                    for name, folder in self._folders()
                ]
                report.result = [*(report.result or ()), *folders]
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        left_out = ordering.leave_out(items, self.options.shard)
        if left_out:
            self.config.hook.pytest_deselected(items=left_out)
        if workers.is_worker(self.config):
            ordering.longest_first(items, workers.known_durations(self.config))

    # Running

    def pytest_runtestloop(self, session: pytest.Session) -> None:
        if not self.config.option.collectonly:
            self.runner.prepare(
                {item.asked.launcher for item in session.items if isinstance(item, ScenarioItem)}
            )

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if not isinstance(item, ScenarioItem):
            markers.skip_unless_able(item)

    def pytest_unconfigure(self) -> None:
        self.runner.close()

    # Reporting

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if isinstance(item, ScenarioItem) and item.entry is not None:
            reporting.attach(report, item.entry)
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.tally.add(report)

    def pytest_report_teststatus(
        self, report: pytest.CollectReport | pytest.TestReport
    ) -> tuple[str, str, str] | None:
        return reporting.status_of(report)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        self.tally.print_to(terminalreporter)

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if workers.is_worker(self.config) or not self.tally.rows:
            return
        stopped = exitstatus == pytest.ExitCode.INTERRUPTED
        self.tally.write(
            self.runner.part,
            always=self.config.option.hanglab_artifacts is not None,
            # As by `-x`, too.
            interrupted=stopped or bool(session.shouldstop or session.shouldfail),
        )
        self._keep_durations()

    def _keep_durations(self) -> None:
        cache = self.config.cache if self.config.pluginmanager.hasplugin("cacheprovider") else None
        if cache is not None:
            known = workers.known_durations(self.config)
            cache.set(workers.DURATIONS_CACHE, {**known, **self.tally.durations})

    def _folders(self) -> Iterator[tuple[str, Path]]:
        """Name and folder of hanglab's own scenarios, and of the installed packs that are named."""
        yield "hanglab", self.project
        for pack in installed_packs() if self.options.packs else ():
            if pack.name in self.options.packs and pack.folder is not None:
                yield pack.name, pack.folder

    def scenario_files(self, folder: Path) -> Iterator[Path]:
        for path in sorted(folder.rglob("*.py")):
            if self.declares(path):
                yield path


def _require_writable(folder: Path) -> None:
    """Raises pytest.UsageError where artifacts cannot be written."""
    probe = folder / f".hanglab-{id(folder):x}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as failure:
        raise pytest.UsageError(
            f"--hanglab-artifacts={folder}: cannot be written: {failure.strerror or failure}.  "
            f"{ArtifactsError.advice}"
        ) from failure
