"""Which lines of user code the sampler counts, and whether the data loader had called them."""

from __future__ import annotations

import sys
import threading
import time
from types import FrameType, FunctionType
from typing import Any

import pytest
from installed import needs_torch

from hanglab.recorder.rank.line_samples import LineSampler

pytestmark = needs_torch


@pytest.fixture(scope="module", autouse=True)
def with_torch() -> None:
    global dataloader, IterableDataset
    from torch.utils.data import IterableDataset, dataloader


@pytest.fixture
def sampler() -> LineSampler:
    """It looks at the thread that it is called in, and takes this file for the user's."""
    return LineSampler(lambda file: file == __file__, lambda thread: "a section")


class Looked:
    def __init__(self, sampler: LineSampler) -> None:
        self.sampler = sampler

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> int:
        self.sampler.look()
        return index


def looked_stream(sampler: LineSampler) -> object:
    class Stream(IterableDataset):  # type: ignore[type-arg]
        def __iter__(self):  # type: ignore[no-untyped-def]
            for index in range(3):
                sampler.look()
                yield index

    return Stream()


def rows(sampler: LineSampler) -> list[tuple[object, object, object]]:
    return [(row["function"], row["within"], row["count"]) for row in sampler.rows()]


@pytest.mark.parametrize(
    ("data", "function"), [(Looked, "__getitem__"), (looked_stream, "__iter__")]
)
def test_what_the_loader_calls_in_the_ranks_own_thread_is_input(
    sampler: LineSampler, data: type, function: str
) -> None:
    assert len(list(dataloader.DataLoader(data(sampler), batch_size=1))) == 3
    assert rows(sampler) == [(function, "input", 3)]
    assert sampler.rows()[0]["section"] == "a section"


def test_the_same_line_called_by_the_user_is_none(sampler: LineSampler) -> None:
    dataset = Looked(sampler)
    for index in range(2):
        dataset[index]
    for _ in dataloader.DataLoader(dataset):
        pass
    assert rows(sampler) == [("__getitem__", "input", 3), ("__getitem__", "", 2)]


def test_what_runs_beside_the_loader_in_the_loop_is_none(sampler: LineSampler) -> None:
    for _ in dataloader.DataLoader(range(2)):  # type: ignore[arg-type]
        train_step(sampler)
    assert rows(sampler) == [("train_step", "", 2)]


def train_step(sampler: LineSampler) -> None:
    sampler.look()


def test_what_is_imported_by_the_loader_s_module_is_none(sampler: LineSampler) -> None:
    """Its frames are on the stack then, too, yet no batch is made."""
    code = compile("looked()", dataloader.__file__, "exec")
    FunctionType(code, {"looked": lambda: train_step(sampler)})()
    assert code.co_name == "<module>"
    assert rows(sampler) == [("train_step", "", 1)]


_LOOP = """\
def loop():
    count = 0
    for value in range(4):
        if value > 1:
            count += 1
    return count
"""


def test_the_jump_back_to_the_head_of_a_loop_is_of_the_line_before_it() -> None:
    """Python 3.11 gives it none, and lets other threads run nowhere else in such a loop."""
    names: dict[str, Any] = {}
    exec(compile(_LOOP, "loop.py", "exec"), names)
    watching = LineSampler(lambda file: file == "loop.py", lambda thread: "")
    looked = 0

    def look(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal looked
        frame.f_trace_opcodes = True
        if event == "opcode":
            watching.look()
            looked += 1
        return look

    before = sys.gettrace()
    sys.settrace(
        lambda frame, *rest: look(frame, *rest) if frame.f_code.co_name == "loop" else None
    )
    try:
        assert names["loop"]() == 2
    finally:
        sys.settrace(before)
    assert {row["line"] for row in watching.rows()} - {1} == {2, 3, 4, 5, 6}
    counts = [row["count"] for row in watching.rows()]
    assert sum(counts) == looked > 20  # type: ignore[arg-type]


def test_the_wait_for_a_key_is_a_wait_for_a_peer(sampler: LineSampler) -> None:
    """``Store.wait`` is C++, which leaves no frame of its own."""
    from torch._C._distributed_c10d import HashStore, PrefixStore, Store, TCPStore

    from hanglab.recorder.rank.store_keys import StoreKeys

    waits, original = StoreKeys(lambda: 0), Store.__dict__["wait"]
    waits.install(Store, PrefixStore, TCPStore)
    try:
        store = HashStore()
        answers: list[object] = []
        waiting = threading.Thread(target=lambda: answers.append(store.get("key")))
        watching = LineSampler(lambda file: file == __file__, lambda thread: "")
        waiting.start()
        watching._main = waiting.ident or 0
        deadline = time.monotonic() + 30
        while not watching.rows() and time.monotonic() < deadline:
            watching.look()
        store.set("key", "value")
        waiting.join()
    finally:
        waits.uninstall()
    assert answers == [b"value"]
    assert {row["below"] for row in watching.rows()} == {"communication"}
    assert Store.__dict__["wait"] is original
