from __future__ import annotations

import pytest

from hanglab.recorder.profiling.configuration import (
    BadConfiguration,
    Detail,
    TraceWindow,
    check_text,
    configuration,
    lasts_s,
    trace_path,
    values_of,
)


def test_request_by_time() -> None:
    text = configuration("/t/rank0.json", "id", TraceWindow(300, 1500, 42), Detail(stacks=True))
    assert text == (
        "ACTIVITIES_LOG_FILE=/t/rank0.json\n"
        "REQUEST_TRACE_ID=id\n"
        "PROFILE_START_TIME=42\n"
        "ACTIVITIES_DURATION_MSECS=300\n"
        "ACTIVITIES_WARMUP_PERIOD_SECS=2\n"
        "PROFILE_WITH_STACK=true\n"
    )


def test_request_by_iterations_names_no_time() -> None:
    window = TraceWindow(iterations=3, roundup=50)
    values = values_of(configuration("/t/a.json", "id", window, Detail(shapes=True)))
    assert values["ACTIVITIES_ITERATIONS"] == "3"
    assert values["PROFILE_START_ITERATION_ROUNDUP"] == "50"
    assert values["PROFILE_REPORT_INPUT_SHAPES"] == "true"
    assert "ACTIVITIES_DURATION_MSECS" not in values


@pytest.mark.parametrize("key", ["PROFILE_MEMORY", "PROFILE_PROFILE_MEMORY"])
def test_memory_profiling_is_refused(key: str) -> None:
    # On CPU it leaves a spinning thread in the job, and no file.
    with pytest.raises(BadConfiguration, match="spinning thread"):
        check_text(f"ACTIVITIES_LOG_FILE=/t/a.json\n{key}=true\n")
    assert check_text(f"{key}=false\n")


def test_bad_integer_is_refused_since_kineto_would_lose_the_request_silently() -> None:
    with pytest.raises(BadConfiguration, match="ACTIVITIES_DURATION_MSECS"):
        check_text("ACTIVITIES_DURATION_MSECS=5oo\n")


@pytest.mark.parametrize(
    "text",
    ["EVENTS_LOG_FILE=/etc/passwd\n", "no equals sign\n", "ACTIVITIES_LOG_FILE=/a\x01b\n"],
)
def test_settings_beyond_the_known_ones_are_refused(text: str) -> None:
    with pytest.raises(BadConfiguration):
        check_text(text)


@pytest.mark.parametrize(
    "window",
    [TraceWindow(0), TraceWindow(warmup_ms=-1), TraceWindow(iterations=-1), TraceWindow(roundup=0)],
)
def test_windows_that_no_trace_can_have(window: TraceWindow) -> None:
    with pytest.raises(BadConfiguration):
        configuration("/t/a.json", "id", window, Detail())


def test_file_name_that_cannot_smuggle_a_second_setting() -> None:
    with pytest.raises(BadConfiguration):
        configuration("/t/a.json\nEVENTS_LOG_FILE=/etc/x", "id", TraceWindow(), Detail())


@pytest.mark.parametrize(
    ("file", "written"),
    [
        ("/t/rank0.pt.trace.json", "/t/rank0_7.pt.trace.json"),
        ("/t/rank0.json", "/t/rank0_7.json"),
        ("/t/a.json/b.json", "/t/a_7.json/b.json"),
    ],
)
def test_pid_goes_before_the_first_ending(file: str, written: str) -> None:
    assert trace_path(file, 7) == written


@pytest.mark.parametrize(
    ("window", "seconds"),
    [
        # Kineto begins two turns of a second after a request that names no start.
        (TraceWindow(500), 2.5),
        (TraceWindow(500, warmup_ms=1500), 4.5),
        (TraceWindow(500, start_ms=1_003_000), 3.5),
        (TraceWindow(500, start_ms=900_000), 0.5),
        (TraceWindow(iterations=3), None),
    ],
)
def test_end_of_a_trace_that_begins_now(window: TraceWindow, seconds: float | None) -> None:
    text = configuration("/t/a.json", "id", window, Detail())
    assert lasts_s(text, 1000.0) == seconds
    # What dynolog's own client leaves out.
    assert lasts_s("ACTIVITIES_LOG_FILE=/t/a.json\n", 1000.0) == 7.5
