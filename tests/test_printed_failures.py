"""A test that fails where there is no line costs no more than itself."""

from __future__ import annotations

from types import TracebackType

import pytest


def _without_line() -> None:
    raise ValueError("at no line")


def _names(traceback: TracebackType | None) -> list[str]:
    found = []
    while traceback is not None:
        found.append(traceback.tb_frame.f_code.co_name)
        traceback = traceback.tb_next
    return found


def test_an_entry_without_a_line_is_left_out(request: pytest.FixtureRequest) -> None:
    known = _without_line.__code__
    _without_line.__code__ = known.replace(co_linetable=b"")
    try:
        with pytest.raises(ValueError, match="at no line") as caught:
            _without_line()
    finally:
        _without_line.__code__ = known
    error = caught.value
    assert error.__traceback__ is not None and error.__traceback__.tb_next is not None
    if error.__traceback__.tb_next.tb_lineno is not None:
        pytest.skip("this Python gives it a line: run with 3.11")
    assert _names(error.__traceback__)[1:] == ["_without_line"]
    call = pytest.CallInfo.from_call(lambda: _raise(error), "call")
    report = request.config.hook.pytest_runtest_makereport(item=request.node, call=call)
    assert report.failed and "at no line" in str(report.longrepr)
    assert "_without_line" not in _names(error.__traceback__)


def _raise(error: BaseException) -> None:
    raise error
