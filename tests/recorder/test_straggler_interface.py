"""The straggler detector within one process: its interface, and bad input."""

from __future__ import annotations

import functools
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import hanglab.recorder as recorder
import hanglab.recorder.straggler as straggler
from hanglab.recorder.case.progress import read_progress
from hanglab.recorder.rank.progress_file import ProgressFile
from hanglab.recorder.rank.sections import section_type
from hanglab.recorder.straggler import (
    CallableId,
    Detector,
    Report,
    Statistic,
    StragglerId,
    sections,
)

if TYPE_CHECKING:
    from hanglab.recorder.rank.native.writer import Writer

NAMES = (
    "straggler_gpus_relative",
    "straggler_gpus_individual",
    "straggler_sections_relative",
    "straggler_sections_individual",
)


@pytest.fixture
def shared(writer: type[Writer] | None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The detector of the class, timed by either of what times sections."""
    timer = section_type(ProgressFile(None, writer), written=False)
    monkeypatch.setattr(sections, "private_section", lambda: timer)
    try:
        yield
    finally:
        Detector.shutdown()


def report_of(detector: Any) -> Report:
    report = detector.generate_report()
    assert isinstance(report, Report)
    return report


def counts(report: Report) -> dict[str, float | None]:
    return {name: s[Statistic.NUM] for name, s in report.local_section_summaries.items()}


# The examples of the usage guide of NVIDIA's detector, with another import.


def test_guide_with_sections(shared: None) -> None:
    straggler.Detector.initialize(
        scores_to_compute=["relative_perf_scores", "individual_perf_scores"],
        gather_on_rank0=True,
    )
    rank = 0
    for training_iter in range(20):
        with straggler.Detector.detection_section("data_loading", profile_cuda=False):
            time.sleep(0.001)
        with straggler.Detector.detection_section("fwd", profile_cuda=True):
            sum(range(1000))
        if (training_iter % 10) == 0:
            report = straggler.Detector.generate_report()
            if rank == 0:
                assert report is not None
                stragglers = report.identify_stragglers()
                assert tuple(stragglers) == NAMES
    straggler.Detector.shutdown()
    assert not straggler.Detector.initialized


def test_guide_with_callables(shared: None) -> None:
    class Loader:
        def get_next_batch(self) -> int:
            return 3

    class Model:
        def forward(self, batch: int) -> int:
            return batch + 1

    original = Model.__dict__["forward"]
    straggler.Detector.initialize(
        scores_to_compute=["relative_perf_scores", "individual_perf_scores"],
        gather_on_rank0=True,
    )
    straggler.Detector.wrap_callables(
        callable_ids=[
            straggler.CallableId(Loader, "get_next_batch", ignored_args=("self",)),
            straggler.CallableId(Model, "forward", ignored_args=("self",)),
        ]
    )
    loader, model = Loader(), Model()
    assert [model.forward(loader.get_next_batch()) for _ in range(7)] == [4] * 7
    report = report_of(straggler.Detector)
    module = __name__
    assert counts(report) == {f"{module}.Loader.get_next_batch": 7, f"{module}.Model.forward": 7}
    straggler.Detector.shutdown()
    assert Model.__dict__["forward"] is original


def test_guide_with_intervals(shared: None) -> None:
    straggler.Detector.initialize(report_time_interval=0.01)
    handled = []
    for _ in range(60):
        with straggler.Detector.detection_section("step"):
            time.sleep(0.001)
        report = straggler.Detector.generate_report_if_interval_elapsed()
        assert straggler.Detector.is_interval_elapsed() == (report is not None)
        if report is not None:
            handled.append(report)
    interval = straggler.Detector.report_interval_tracker.iter_interval
    # A step takes a millisecond at least, and longer where something else runs, too.
    assert interval is not None and 1 <= interval <= 10
    assert len(handled) == sum(step % interval == 0 for step in range(20, 61))
    assert counts(handled[1]) == {"step": interval}


@pytest.mark.parametrize("every", [1, 3])
def test_no_report_is_on_fewer_entries_than_a_median_takes(shared: None, every: int) -> None:
    """Any step is longer than the interval, and of each so many one is measured."""
    Detector.initialize(report_time_interval=1e-9, profiling_interval=every)
    reports = []
    for _ in range(60):
        with Detector.detection_section("step"):
            pass
        reports.append(Detector.generate_report_if_interval_elapsed())
    assert Detector.report_interval_tracker.iter_interval == 5 * every
    # The first is on all steps before it.
    assert {counts(one)["step"] for one in reports[31:] if one is not None} == {5}


def test_guide_without_exchange(shared: None) -> None:
    straggler.Detector.initialize(
        scores_to_compute=["individual_perf_scores"],
        gather_on_rank0=False,  # each rank will report its own results
    )
    with straggler.Detector.detection_section("step"):
        pass
    report = report_of(straggler.Detector)
    assert not report.gpu_relative_perf_scores and not report.section_relative_perf_scores
    assert report.section_individual_perf_scores == {"step": {0: 1.0}}
    assert threading.active_count() == 1 or not any(
        thread.name.startswith("hanglab-straggler") for thread in threading.enumerate()
    )


# What stands behind the interface.


def test_every_kind_of_method_can_be_wrapped(shared: None) -> None:
    class Owner:
        def plain(self) -> str:
            return "plain"

        @staticmethod
        def static(value: int = 1) -> int:
            return value

        @classmethod
        def of_class(cls) -> type:
            return cls

    class Heir(Owner):
        pass

    one = Owner()
    Detector.initialize(gather_on_rank0=False)
    Detector.wrap_callables(
        [
            CallableId(one, "plain"),
            CallableId(Owner, "static"),
            CallableId(Owner, "of_class"),
            CallableId(functools, "reduce"),
        ]
    )
    assert (one.plain(), one.static(2), Owner.static(3), Heir.of_class()) == ("plain", 2, 3, Heir)
    assert functools.reduce(lambda a, b: a + b, [1, 2]) == 3
    found = counts(report_of(Detector))
    place = f"{__name__}.Owner"
    assert found == {
        "Owner.plain": 1,
        f"{place}.static": 2,
        f"{place}.of_class": 1,
        "functools.reduce": 1,
    }
    Detector.restore_original_callables()
    assert "plain" not in vars(one) and isinstance(vars(Owner)["static"], staticmethod)
    one.plain()
    assert counts(report_of(Detector)) == {}


def test_a_wrapper_that_was_kept_runs_on_after_the_end(shared: None) -> None:
    class Owner:
        def work(self) -> int:
            return 5

    Detector.initialize()
    Detector.wrap_callables([CallableId(Owner, "work")])
    kept = Owner().work
    Detector.shutdown()
    assert kept() == 5


def test_detectors_are_objects_too(shared: None) -> None:
    Detector.initialize(node_name="shared")
    one, two = Detector(gather_on_rank0=False), Detector(gather_on_rank0=False, node_name="two")
    try:
        for detector, times in ((one, 2), (two, 3), (Detector, 4)):
            for _ in range(times):
                with detector.detection_section("step"):
                    pass
        assert [counts(report_of(d)) for d in (one, two, Detector)] == [
            {"step": 2},
            {"step": 3},
            {"step": 4},
        ]
        two.shutdown()
        assert (one.initialized, two.initialized, Detector.initialized) == (True, False, True)
        assert report_of(Detector).rank_to_node == {0: "shared"}
    finally:
        one.shutdown()
        two.shutdown()


def test_every_second_entry(shared: None) -> None:
    Detector.initialize(profiling_interval=2)
    for _ in range(4):
        with Detector.detection_section(name="one"):
            pass
    assert counts(report_of(Detector)) == {"one": 2}
    assert counts(report_of(Detector)) == {}


def test_a_section_decorates_a_function_and_is_named_by_its_place(shared: None) -> None:
    Detector.initialize()

    @Detector.detection_section("decorated")
    def work(value: int) -> int:
        """Works."""
        return value

    assert [work(n) for n in range(3)] == [0, 1, 2] and work.__doc__ == "Works."
    with Detector.detection_section():
        line = sys._getframe().f_lineno - 1
    assert counts(report_of(Detector)) == {"decorated": 3, f"{__file__}:{line}": 1}


def test_thresholds() -> None:
    detector = Detector(gather_on_rank0=False)
    try:
        for pause in (0.04, 0.08):
            for _ in range(12):
                with detector.detection_section("work"):
                    time.sleep(pause)
            report = report_of(detector)
        found = report.identify_stragglers()
        here = StragglerId(0, report.rank_to_node[0])
        assert found["straggler_sections_individual"] == {"work": {here}}
        assert not report.identify_stragglers(section_indiv_threshold=0.3)[
            "straggler_sections_individual"
        ]
        assert not report.identify_stragglers(floor_ms=1000)["straggler_sections_individual"]
        assert found["straggler_gpus_relative"] == found["straggler_gpus_individual"] == set()
        # Without a device there are no kernels to score: unknown, not bad, and not NaN.
        assert report.gpu_individual_perf_scores == {0: None}
    finally:
        detector.shutdown()


# Bad input.


def test_before_there_is_a_detector(caplog: pytest.LogCaptureFixture) -> None:
    Detector._shared = None
    with caplog.at_level(logging.WARNING, "hanglab.straggler"):
        for _ in range(3):
            with Detector.detection_section("step"):
                pass
        assert Detector.generate_report() is None
        assert Detector.generate_report_if_interval_elapsed() is None
        Detector.shutdown()
    assert len([r for r in caplog.records if "call Detector.initialize" in r.message]) == 1


def test_initialized_twice(shared: None, caplog: pytest.LogCaptureFixture) -> None:
    Detector.initialize(node_name="first")
    with caplog.at_level(logging.WARNING, "hanglab.straggler"):
        Detector.initialize(node_name="second")
    assert "initialized twice" in caplog.text
    with Detector.detection_section("step"):
        pass
    assert report_of(Detector).rank_to_node == {0: "second"}


def test_a_section_that_was_declared_and_never_entered(shared: None) -> None:
    class Owner:
        def work(self) -> None: ...

    Detector.initialize()
    Detector.wrap_callables([CallableId(Owner, "work")])
    Detector.detection_section("forgotten")
    (wrapped, forgotten) = report_of(Detector).warnings
    assert "Owner.work" in wrapped and "never entered" in wrapped
    assert "'forgotten'" in forgotten and "never entered" in forgotten and __file__ in forgotten
    Owner().work()
    assert [text for text in report_of(Detector).warnings if "Owner" in text] == []


def test_a_wrapper_that_something_else_replaced(shared: None) -> None:
    class Owner:
        def work(self) -> None: ...

    Detector.initialize()
    Detector.wrap_callables([CallableId(Owner, "work")])
    Owner().work()
    Owner.work = lambda self: None  # type: ignore[method-assign]
    assert any("no longer timed" in text for text in report_of(Detector).warnings)
    replaced = Owner.__dict__["work"]
    Detector.shutdown()
    assert Owner.__dict__["work"] is replaced


def test_sections_nest_and_one_below_itself_counts_once(shared: None) -> None:
    Detector.initialize()

    def dive(depth: int) -> None:
        with Detector.detection_section("same"):
            time.sleep(0.002)
            if depth:
                dive(depth - 1)

    with Detector.detection_section("outer"):
        dive(2)
    report = report_of(Detector)
    assert counts(report) == {"same": 1, "outer": 1}
    same, outer = (report.local_section_summaries[n][Statistic.MED] for n in ("same", "outer"))
    assert same is not None and outer is not None and 6 <= same <= outer


def test_two_places_with_one_name_are_one_section(shared: None) -> None:
    Detector.initialize()
    with Detector.detection_section("step"):
        pass
    with Detector.detection_section("step"):
        pass
    assert counts(report_of(Detector)) == {"step": 2}


def test_what_a_section_raises_passes_and_is_not_timed(shared: None) -> None:
    Detector.initialize()
    with pytest.raises(KeyError), Detector.detection_section("step"):
        raise KeyError("theirs")
    with Detector.detection_section("step"):
        pass
    assert counts(report_of(Detector)) == {"step": 1}


def test_a_section_that_never_ends(shared: None) -> None:
    Detector.initialize()
    stuck = Detector.detection_section("stuck")
    stuck.__enter__()
    with Detector.detection_section("other"):
        pass
    report = report_of(Detector)
    assert counts(report) == {"other": 1}
    standing = Detector.shared()._measuring.standing(1, 0.0)
    assert standing.open[0][0] == "stuck" and standing.open[0][1] > 0
    stuck.__exit__(None, None, None)
    assert counts(report_of(Detector)) == {"stuck": 1}
    stuck.__exit__(None, None, None)
    assert counts(report_of(Detector)) == {}


def test_a_section_that_ends_on_another_thread(shared: None) -> None:
    Detector.initialize()
    section = Detector.detection_section("handed over")
    section.__enter__()
    thread = threading.Thread(target=section.__exit__, args=(None, None, None))
    thread.start()
    thread.join()
    report = report_of(Detector)
    assert counts(report) == {}
    assert any("another thread" in text for text in report.warnings)
    with Detector.detection_section("handed over"):
        pass
    assert counts(report_of(Detector)) == {"handed over": 1}


def test_threads_have_sections_of_their_own(shared: None) -> None:
    Detector.initialize()

    def work() -> None:
        for _ in range(50):
            with Detector.detection_section("many"):
                time.sleep(0.0001)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts(report_of(Detector)) == {"many": 200}


def test_a_wall_clock_that_jumps(shared: None, monkeypatch: pytest.MonkeyPatch) -> None:
    Detector.initialize(report_time_interval=0.01)
    real, jump = time.time_ns, [0]
    monkeypatch.setattr(time, "time_ns", lambda: real() + jump[0])
    monkeypatch.setattr(time, "time", lambda: (real() + jump[0]) / 1e9)
    reports = 0
    for step in range(60):
        jump[0] = (-1) ** step * 3_600_000_000_000
        with Detector.detection_section("step"):
            time.sleep(0.001)
        report = Detector.generate_report_if_interval_elapsed()
        if report is not None:
            reports += 1
            longest = report.local_section_summaries["step"][Statistic.MAX]
            assert longest is not None and 1 <= longest < 100_000
    interval = Detector.report_interval_tracker.iter_interval
    assert interval is not None and 1 <= interval <= 10
    assert reports == sum(step % interval == 0 for step in range(20, 61))


def test_a_recorded_section_has_one_time(
    shared: None, writer: type[Writer] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    progress = ProgressFile(None, writer)
    progress.identify(0, 0, 1)
    Detector.initialize(profiling_interval=2)
    monkeypatch.setattr(recorder, "_active", SimpleNamespace(section=section_type(progress)))
    with Detector.detection_section("outer"):
        for _ in range(3):
            with Detector.detection_section("inner"):
                time.sleep(0.001)
    monkeypatch.undo()
    found = read_progress(progress.mapping[:])
    inner = [event.wall_ns for event in found.section_events if event.section == "inner"]
    assert [event.section for event in found.section_events] == [*["inner"] * 3, "outer"]
    sections = report_of(Detector).windows[0].sections
    assert sections["inner"].wall.median == pytest.approx((inner[0] + inner[2]) / 2e6)
    assert sections["outer"].wall.median == found.section_events[-1].wall_ns / 1e6


def test_no_torch_is_needed_to_import_it() -> None:
    code = (
        "import sys, hanglab.recorder.straggler as s\n"
        "assert not {'torch', 'numpy', 'msgspec'} & set(sys.modules)\n"
        "s.Detector.initialize()\n"
        "with s.Detector.detection_section('a'): pass\n"
        "print(s.Detector.generate_report().section_relative_perf_scores)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=280, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "{'a': {0: 1.0}}\n", "")


def test_the_hooks_go_with_the_last_detector(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    distributed = pytest.importorskip("torch.distributed")
    from torch._C._distributed_c10d import ProcessGroup, Work
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    def entries() -> list[object]:
        return [
            ProcessGroup.__dict__["allreduce"],
            Work.__dict__["wait"],
            _BaseDataLoaderIter.__dict__["__next__"],
        ]

    before = entries()
    one, two = Detector(), Detector()
    assert all(now is not then for now, then in zip(entries(), before, strict=True))
    distributed.init_process_group("gloo", rank=0, world_size=1, store=distributed.HashStore())
    try:
        with one.detection_section("reduce"):
            tensor = torch.ones(2)
            distributed.all_reduce(tensor)
        assert tensor.tolist() == [1, 1]
        window = report_of(one).windows[0]
        assert window.sections["reduce"].communication_ms > 0
    finally:
        distributed.destroy_process_group()
    one.shutdown()
    assert all(now is not then for now, then in zip(entries(), before, strict=True))
    two.shutdown()
    assert entries() == before
