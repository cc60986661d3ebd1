"""Tests say by the plugin's markers what they need, and are skipped where it is missing.

A run of them leaves nothing behind: see :mod:`remains`.  ``docs/testing.md`` says how
they are shared out among workers.
"""

from __future__ import annotations

import signal
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import hypothesis
import kept_launcher as kept
import pytest
import sharing
import tracebacks
from remains import Remains
from repetitions import mark_all_but_few

from hanglab.harness.pytest_plugin.markers import skip_unless_able

if TYPE_CHECKING:
    from xdist.remote import Producer

    from hanglab.harness.launchers.local import LocalLauncher

# One run tries what the next one tries, so that a change fails for what it changed.  Who looks for
# new examples says `--hypothesis-profile default`.
hypothesis.settings.register_profile("repeatable", derandomize=True)
hypothesis.settings.load_profile("repeatable")

_REMAINS = pytest.StashKey[Remains]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_REMAINS] = Remains()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell does this to what it starts in the background, and the jobs of tests that are
        # interrupted would inherit it.
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[_REMAINS].remove()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mark_all_but_few(items)
    items.sort(key=sharing.place)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> sharing.Sharing | None:
    # Scenarios beside tests (`make gpu`) are shared out one by one.
    return None if config.getoption("--hanglab") else sharing.Sharing(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    result = yield
    item.config.stash[_REMAINS].note(item.nodeid)
    return result


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(call: pytest.CallInfo[object]) -> None:
    if call.excinfo is not None:
        tracebacks.repair(call.excinfo.value)
        call.excinfo = pytest.ExceptionInfo.from_exception(call.excinfo.value)


@pytest.fixture(scope="session", autouse=True)
def nothing_stays_behind(pytestconfig: pytest.Config) -> Iterator[None]:
    """Folders and agents of all the jobs that this process has had recorded."""
    yield
    left = pytestconfig.stash[_REMAINS].wait()
    assert not left, "the tests have left behind:\n" + "\n".join(left)


@pytest.fixture(scope="session")
def _launcher_of_worker() -> Iterator[LocalLauncher]:
    with kept.kept_launcher() as launcher:
        yield launcher


@pytest.fixture(scope="module")
def kept_launcher(_launcher_of_worker: LocalLauncher) -> Iterator[None]:
    """Local jobs that commands start within this process come from one warm process."""
    with kept.lent_to_commands(_launcher_of_worker):
        yield


def pytest_runtest_setup(item: pytest.Item) -> None:
    skip_unless_able(item)
