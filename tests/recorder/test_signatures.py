"""What repeats in operations is written once, and each operation is told exactly all the same."""

from __future__ import annotations

import gc
import itertools
import struct
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from installed import needs_torch

from hanglab.recorder.archive.progress_redaction import redact_progress
from hanglab.recorder.archive.pseudonyms import Pseudonyms
from hanglab.recorder.case import layout
from hanglab.recorder.case.layout import NONE, Slot
from hanglab.recorder.case.progress import read_counters, read_progress
from hanglab.recorder.case.progress_records import OperationCall
from hanglab.recorder.rank.arguments import takes_a_timeout
from hanglab.recorder.rank.boundary import Boundary
from hanglab.recorder.rank.call_site import CallSites
from hanglab.recorder.rank.progress_file import ProgressFile

pytestmark = needs_torch

RING = layout.OPERATIONS.capacity


@pytest.fixture(scope="module", autouse=True)
def with_torch() -> None:
    global torch, dist
    import torch
    import torch.distributed as dist


class Recorded:
    """The boundary of this process, with a group of which it is the only member."""

    def __init__(self) -> None:
        from torch._C._distributed_c10d import ProcessGroup, Work

        self.file = ProgressFile(None)
        self.file.identify(0, 0, 1)
        self.seen: list[Any] = []
        sites = CallSites(lambda file: file == __file__, self.file.text)
        self.boundary = Boundary(self.file, sites, self.seen.append)
        self.boundary.install(ProcessGroup, Work)

    @property
    def data(self) -> bytes:
        return bytes(self.file.mapping[:])

    @property
    def operations(self) -> list[OperationCall]:
        return read_progress(self.data).operations

    @property
    def signatures(self) -> int:
        return self.file.slots[Slot.SIGNATURES_TOTAL]


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorded]:
    # torch puts one of its own there, and leaves it.
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    recorded = Recorded()
    try:
        yield recorded
    finally:
        recorded.boundary.uninstall()
        dist.destroy_process_group()


def test_calls_of_one_line_share_a_signature(recorded):
    for _ in range(5):
        dist.all_reduce(torch.ones(2, 3))
    assert recorded.signatures == 1
    assert len(recorded.operations) == 5
    for number, operation in enumerate(recorded.operations):
        assert (operation.index, operation.method, operation.group) == (number, "allreduce", "0")
        assert (operation.shape, operation.dtype, operation.numel) == ((2, 3), "Float", 6)
        assert operation.group_seq == number and operation.completed
        assert operation.function == "test_calls_of_one_line_share_a_signature"
        assert operation.thread_id == threading.get_ident()
    assert len({operation.line for operation in recorded.operations}) == 1
    assert len(recorded.seen) == 1


def test_whatever_varies_at_one_line_is_told_of_each(recorded):
    other = dist.new_group([0])
    kinds = [
        (group, shape, dtype)
        for group in (dist.group.WORLD, other)
        for shape in ([], [1], [2, 3])
        for dtype in (torch.float32, torch.int64)
    ]
    for group, shape, dtype in kinds * 2:
        dist.all_reduce(torch.zeros(shape, dtype=dtype), group=group)
    names = {torch.float32: "Float", torch.int64: "Long"}
    expected = [(g.group_name, tuple(shape), names[dtype]) for g, shape, dtype in kinds * 2]
    assert [(o.group, o.shape, o.dtype) for o in recorded.operations] == expected
    assert recorded.signatures == len(kinds)


def test_roots_and_split_lists_are_told_of_each(recorded):
    group = dist.group.WORLD
    for root in (0, 7, 0):
        options = dist.BroadcastOptions()
        options.rootRank = root
        try:
            group.broadcast([torch.ones(1)], options).wait()
        except (RuntimeError, ValueError):
            assert root == 7
    for _ in range(2):
        dist.all_to_all_single(torch.zeros(2), torch.ones(2), [2], [2])
    dist.all_to_all_single(torch.zeros(2), torch.ones(2))
    broadcasts, exchanges = recorded.operations[:3], recorded.operations[3:]
    assert [(o.root, o.failed) for o in broadcasts] == [(0, False), (7, True), (0, False)]
    assert [o.splits for o in exchanges] == [((2,), (2,))] * 2 + [None]


def test_arguments_given_by_name_are_taken(recorded):
    tensor = torch.ones(1)
    dist.group.WORLD.allreduce(tensors=[tensor]).wait()
    dist.group.WORLD.allreduce([tensor], opts=dist.AllreduceOptions()).wait()
    dist.group.WORLD.allreduce([tensor]).wait()
    found = recorded.operations
    assert [o.shape for o in found] == [None, (1,), (1,)]
    assert all(o.completed and o.wait_returned_ns for o in found)


def test_wrong_arguments_are_for_the_call_to_judge(recorded):
    with pytest.raises(TypeError):
        dist.group.WORLD.allreduce("nonsense", 3, 4)
    (found,) = recorded.operations
    assert found.failed and found.shape is None and found.line


def test_a_signature_in_use_outlives_any_number_of_others(recorded):
    rounds = 2 * layout.SIGNATURES.capacity
    for number in range(1, rounds + 1):
        for length in (3, 10 + number):
            dist.all_reduce(torch.empty(length, dtype=torch.int8))
    found = recorded.operations
    assert len(found) == RING and recorded.signatures > rounds
    expected = [n for number in range(rounds + 1) for n in (3, 10 + number)][-RING:]
    assert [o.numel for o in found] == expected
    assert {o.method for o in found} == {"allreduce"}


def test_threads_do_not_take_each_others_signatures(recorded):
    other = dist.new_group([0])
    groups = {0: dist.group.WORLD, 1: other}
    # A thread that begins when another has ended may get its id.
    all_alive = threading.Barrier(5)

    def work(length: int) -> None:
        all_alive.wait()
        group = groups[length % 2]
        for number in range(200):
            tensor = torch.zeros(length, number % 7 + 1)
            group.allreduce([tensor], dist.AllreduceOptions()).wait()

    threads = [threading.Thread(target=work, args=(length,)) for length in range(1, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lengths: dict[int, list[OperationCall]] = {}
    for operation in recorded.operations:
        lengths.setdefault(operation.thread_id, []).append(operation)
        assert operation.completed and operation.reduce_op in ("", "sum")
    assert sum(map(len, lengths.values())) == 1000
    for found in lengths.values():
        (length,) = {o.shape[0] for o in found}
        assert {o.group for o in found} == {groups[length % 2].group_name}
        assert [o.shape for o in found] == [(length, n % 7 + 1) for n in range(200)]


def test_waits_belong_to_their_own_operations(recorded):
    works = [dist.all_reduce(torch.ones(n + 1), async_op=True) for n in range(3)]
    works[2].wait()
    works[0].wait()
    first, second, third = recorded.operations
    assert second.wait_entered_ns is None and second.wait_returned_ns is None
    assert third.wait_returned_ns <= first.wait_entered_ns <= first.wait_returned_ns
    assert first.completed and third.completed and not second.completed
    recorded.boundary.read_completions()
    assert recorded.operations[1].completed


class Work:
    """Stands for torch's, so that calls can be made to nest, and tensors to be elsewhere."""

    def wait(self, *given: Any, **named: Any) -> Any:
        return given, named


class Tensor:
    shape = (4,)
    dtype = "torch.float32"
    is_cpu = False


class Group:
    """Stands for torch's ProcessGroup."""

    def __init__(self, name: str) -> None:
        self.group_name = name
        self.inside: Any = None

    def allreduce(self, tensors: Any, options: Any) -> Work:
        if self.inside is not None:
            self.inside()
        return Work()


@pytest.fixture
def progress() -> Iterator[ProgressFile]:
    file = ProgressFile(None)
    file.identify(0, 0, 1)
    sites = CallSites(lambda name: name == __file__, file.text)
    boundary = Boundary(file, sites, lambda group: None)
    boundary.install(Group, Work)
    try:
        yield file
    finally:
        boundary.uninstall()


def found_in(file: ProgressFile) -> list[OperationCall]:
    return read_progress(bytes(file.mapping[:])).operations


def test_torch_gives_a_wait_a_timeout_and_nothing_else():
    assert takes_a_timeout(dist.Work.wait)
    assert takes_a_timeout(lambda self, timeout=None: True)
    assert not takes_a_timeout(lambda self, timeout=None, blocking=False: True)
    assert not takes_a_timeout(lambda self, *, blocking: True)
    assert not takes_a_timeout(lambda self, **named: True)
    assert not takes_a_timeout(dist.Store.wait)


def test_what_another_torch_takes_for_a_wait_reaches_it(progress):
    work = Group("a").allreduce([Tensor()], None)
    assert work.wait(1, 2) == ((1, 2), {})
    assert work.wait(patience=3) == ((), {"patience": 3})


def test_a_wait_for_a_device_is_not_taken_for_the_end(progress):
    Group("a").allreduce([Tensor()], None).wait()
    (found,) = found_in(progress)
    assert found.wait_returned_ns and not found.completed and not found.failed


def test_a_call_that_outlasts_the_ring_writes_into_no_others_record(progress):
    outer, inner = Group("outer"), Group("inner")

    def fill() -> None:
        for _ in range(RING):
            inner.allreduce([Tensor()], None)

    outer.inside = fill
    outer.allreduce([Tensor()], None).wait()
    found = found_in(progress)
    assert {o.group for o in found} == {"inner"} and len(found) == RING
    assert all(o.wait_entered_ns is None for o in found)


@pytest.mark.slow
def test_another_group_in_the_same_place_has_its_own_name(progress):
    ids: list[int] = []
    while len(ids) == len(set(ids)):
        assert len(ids) < RING, "no place was used twice"
        group = Group(str(len(ids)))
        ids.append(id(group))
        group.allreduce([Tensor()], None)
        del group
        gc.collect()
    assert [o.group for o in found_in(progress)] == [str(number) for number in range(len(ids))]


def test_each_event_of_an_operation_is_movement(progress):
    group = Group("a")
    seen = [read_counters(progress.mapping)]
    group.inside = lambda: seen.append(read_counters(progress.mapping))
    works = [group.allreduce([Tensor()], None)]
    seen.append(read_counters(progress.mapping))
    works.append(group.allreduce([Tensor()], None))
    for work in reversed(works):
        seen.append(read_counters(progress.mapping))
        work.wait()
        seen.append(read_counters(progress.mapping))
    assert [c.operations_total for c in seen] == [0, 1, 1, 2, 2, 2, 2, 2]
    events = [c.operation_event_ns for c in seen]
    assert events == sorted(events)
    # Entered, returned, entered again, and so on; the second wait begins where the first ends.
    assert all(then < now for then, now in itertools.pairwise(events[:6]))
    assert events[5] <= events[6] < events[7]


def version_1() -> bytes:
    """A file as releases before wrote it, with one operation."""
    tables = layout.TABLES_OF[1]
    *places, size = layout.offsets(tables)
    at = dict(zip(tables, places, strict=True))
    data = bytearray(size)
    texts = {"": 0}
    used = 8
    for text in ("broadcast", "0", "[4]", "Float", "/home/me/train.py", "train"):
        texts[text] = used
        encoded = text.encode()
        start = at[layout.TEXT] + used
        data[start : start + 2 + len(encoded)] = len(encoded).to_bytes(2, "little") + encoded
        used += 2 + len(encoded)
    slots = {
        Slot.MAGIC: layout.MAGIC, Slot.VERSION: 1, Slot.FILE_BYTES: size, Slot.TEXT_USED: used,
        Slot.PID: 5, Slot.OPERATIONS_TOTAL: 1, Slot.OPERATION_EVENT: 40,
    }  # fmt: skip
    for slot, value in slots.items():
        struct.pack_into("<q", data, 8 * slot, value)
    for table, place in at.items():
        struct.pack_into(
            "<3q", data, 8 * (Slot.TABLES + 3 * table.place), place, table.capacity, table.record
        )
    values = {
        "number": 1, "number_again": 1, "entered": 10, "returned": 20, "wait_entered": 30,
        "wait_returned": 40, "group_seq": 2, "numel": 4, "tag": NONE, "thread_id": 9, "root": 3,
        "peer": NONE, "method": texts["broadcast"], "group": texts["0"], "reduce_op": 0,
        "shape": texts["[4]"], "dtype": texts["Float"], "splits": 0,
        "file": texts["/home/me/train.py"], "function": texts["train"], "line": 7, "flags": 1,
    }  # fmt: skip
    row = [values[name] for name in layout.OPERATION_FIELDS_1]
    struct.pack_into(f"<{len(row)}q", data, at[layout.OPERATIONS_1], *row)
    return bytes(data)


def test_files_of_layout_1_are_read_as_before():
    found = read_progress(version_1())
    assert found.operations == [
        OperationCall(
            index=0, method="broadcast", group="0", entered_ns=10, returned_ns=20,
            wait_entered_ns=30, wait_returned_ns=40, completed=True, group_seq=2, root=3,
            shape=(4,), dtype="Float", numel=4, thread_id=9, file="/home/me/train.py", line=7,
            function="train",
        )
    ]  # fmt: skip
    assert read_counters(version_1()).operation_event_ns == 40


@pytest.mark.parametrize("version", [1, layout.VERSION])
def test_redaction_keeps_operations_of_either_layout(version, progress):
    if version == 1:
        data = version_1()
    else:
        Group("0").allreduce([Tensor()], None).wait()
        data = bytes(progress.mapping[:])
    before = read_progress(data).operations
    redacted = redact_progress(data, Pseudonyms())
    after = read_progress(redacted).operations
    assert b"train" not in redacted and Path(__file__).name.encode() not in redacted
    for old, new in zip(before, after, strict=True):
        assert new.file not in ("", old.file) and new.function not in ("", old.function)
        old.file, old.function, old.group = new.file, new.function, new.group
        assert old == new
