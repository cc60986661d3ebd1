"""hanglab under pytest: scenarios as items, fixtures for tests of one's own.

Installed by entry point and loaded into every run of pytest, so this file only
wires: nothing else is imported before somebody asks, by an option, a file named
``hanglab_*.py`` that declares a scenario, or a fixture.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController

    from hanglab.harness.pytest_plugin.fixtures import AssertVerdict, CaseAnalyzer, JobRunner
    from hanglab.harness.pytest_plugin.session import PluginSession

#: Not `slow` and the like: those belong to many suites, and are acted on only when asked.
_MARKERS = (
    "hanglab: a scenario of hanglab's, or a test that runs its jobs",
    "cpu: needs no GPU",
    "one_gpu: needs a GPU",
    "multi_gpu(n): needs n GPUs",
    "docker: needs Docker",
    "root: has to run as root",
    "slow: takes much longer than its like",
)
#: Hanglab's own packs; importing them would wake it.
_PACKS = ("serving", "rl", "training", "checkpoint", "data", "network", "host", "nccl")
_SESSION = "hanglab-session"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("hanglab", "hanglab: distributed hangs and their verdicts")
    group.addoption(
        "--hanglab",
        action="store_true",
        help="Collect the scenarios in all files below the given paths, with their controls; "
        "without a path those that come with hanglab.",
    )
    group.addoption(
        "--hanglab-builtin",
        action="store_true",
        help="Collect the scenarios that come with hanglab, too.",
    )
    group.addoption(
        "--hanglab-pack",
        action="append",
        metavar="NAMES",
        help="Collect the scenarios of these packs alone, by commas; `hanglab packs` lists them.",
    )
    group.addoption(
        "--hanglab-backend",
        action="append",
        metavar="NAMES",
        help="Backends of the process groups, by commas: gloo (without this option), nccl.",
    )
    group.addoption(
        "--hanglab-launcher",
        action="append",
        metavar="NAMES",
        help="What starts the ranks, by commas; `hanglab run --help` lists what there is.",
    )
    group.addoption(
        "--hanglab-world-size",
        action="append",
        metavar="NUMBERS",
        help="Ranks, by commas; each scenario's own without this option.",
    )
    group.addoption(
        "--hanglab-repeat",
        metavar="N",
        help="Run each item N times, with seeds 0 to N - 1, and report how often it passes.",
    )
    group.addoption(
        "--hanglab-shard",
        metavar="I/N",
        help="Run the I-th of N equal parts of the scenarios; the controls go with their faults.",
    )
    group.addoption(
        "--hanglab-artifacts",
        metavar="FOLDER",
        help="Where each run gets a folder of its own; `runs` without this option.",
    )


def pytest_configure(config: pytest.Config) -> None:
    for marker in (*_MARKERS, *(f"pack_{name}: a scenario of that pack" for name in _PACKS)):
        config.addinivalue_line("markers", marker)
    if config.getoption("dist", "no") != "no" and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Controller(config), "hanglab-controller")
    option = config.option
    if any(
        value is not None and value is not False
        for value in (
            option.hanglab,
            option.hanglab_builtin,
            option.hanglab_pack,
            option.hanglab_backend,
            option.hanglab_launcher,
            option.hanglab_world_size,
            option.hanglab_repeat,
            option.hanglab_shard,
            option.hanglab_artifacts,
        )
    ):
        wake(config)


def wake(config: pytest.Config) -> PluginSession:
    """The session's part of the plugin, imported and registered when first asked for.

    Raises pytest.UsageError for options that make no sense.
    """
    found: PluginSession | None = config.pluginmanager.get_plugin(_SESSION)
    if found is None:
        from hanglab.harness.pytest_plugin.session import PluginSession

        found = PluginSession(config)
        config.pluginmanager.register(found, _SESSION)
    return found


def _is_scenario_file(path: Path, config: pytest.Config) -> bool:
    if path.suffix != ".py":
        return False
    if path.name.startswith("hanglab_"):
        try:
            text = path.read_bytes()
        except OSError:
            return False
        return b"hanglab" in text and b"scenario" in text and wake(config).declares(path)
    session: PluginSession | None = config.pluginmanager.get_plugin(_SESSION)
    return session is not None and session.collects_any_name(path)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if not _is_scenario_file(file_path, parent.config):
        return None
    session = wake(parent.config)
    # pytest itself makes a module of it, by the hook below, where it takes it for a test file.
    return None if session.taken_by_pytest(file_path, parent) else session.file(parent, file_path)


def pytest_pycollect_makemodule(
    module_path: Path, parent: pytest.Collector
) -> pytest.Collector | None:
    if not _is_scenario_file(module_path, parent.config):
        return None
    return wake(parent.config).file(parent, module_path)


class _Controller:
    """Hooks of the controller of pytest-xdist, which collects nothing itself."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: WorkerController) -> None:
        from hanglab.harness.pytest_plugin.workers import tell_worker

        tell_worker(node, self._config)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if "hanglab" in report.keywords and self._config.pluginmanager.get_plugin(_SESSION) is None:
            # Registered during the call, so this report does not reach it by itself.
            wake(self._config).pytest_runtest_logreport(report)


@pytest.fixture
def hanglab_job(request: pytest.FixtureRequest) -> JobRunner:
    """Runs a script or a scenario as a job: ``hanglab_job("train.py", world_size=2).verdict``."""
    from hanglab.harness.pytest_plugin.fixtures import JobRunner

    return JobRunner(wake(request.config), request)


@pytest.fixture
def hanglab_case(request: pytest.FixtureRequest) -> CaseAnalyzer:
    """Analyses a Case or a folder of dumps: ``hanglab_case("dumps").verdict``."""
    from hanglab.harness.pytest_plugin.fixtures import CaseAnalyzer

    return CaseAnalyzer(request.path.parent)


@pytest.fixture
def assert_verdict() -> AssertVerdict:
    """Compares a verdict: ``assert_verdict(job, cause="crash", culprits={1})``."""
    from hanglab.harness.pytest_plugin.fixtures import assert_verdict as check

    return check
