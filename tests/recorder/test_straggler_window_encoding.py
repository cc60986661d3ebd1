"""Windows on their way between ranks arrive as they were sent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hanglab.recorder.slowness import InputWait, RunQueue, summarize
from hanglab.recorder.straggler import window_encoding
from hanglab.recorder.straggler.exchange import Exchange, FolderExchange, StoreExchange
from hanglab.recorder.straggler.window import SectionWindow, TimingWindow

WINDOW = TimingWindow(
    number=7,
    rank=3,
    node="Knoten ä",
    span_ms=1234.5678,
    sections={
        "step\n": SectionWindow(
            work=summarize([float(n) for n in range(53)]),
            measure="wall",
            wall=summarize([1.0]),
            communication_ms=0.125,
            input_ms=1.5,
            best=summarize([1.0]),
            individual=0.5,
        ),
        "never told": SectionWindow(work=None, measure="", device=summarize([3.0, 4.0])),
    },
    kernels={"gemm": summarize([0.25, 0.5]) or pytest.fail("no summary")},
    gpu_individual=0.75,
    input=InputWait(0.25, None),
    run_queue=RunQueue(12.5, 40.0),
    warnings=("a warning",),
)


def test_a_window_arrives_as_it_was_sent_without_wall_times() -> None:
    sections = {name: replace(s, wall=None) for name, s in WINDOW.sections.items()}
    assert window_encoding.unpack(window_encoding.pack(WINDOW)) == replace(
        WINDOW, sections=sections
    )
    work = sections["step\n"].work
    assert work is not None and len(work.stretch_medians) == len(work.stretch_means) == 10


def test_its_number_is_known_without_unpacking_it() -> None:
    assert window_encoding.number_of(window_encoding.pack(WINDOW)) == 7


@pytest.mark.parametrize("cut", [0, 1, 30, -1, -40])
def test_what_is_damaged_raises_what_its_reader_expects(cut: int) -> None:
    packed = window_encoding.pack(WINDOW)
    with pytest.raises((ValueError, TypeError, KeyError)):
        window_encoding.unpack(packed[:cut])


@pytest.mark.parametrize("data", [b"", b"{}", b'{"number":1}', b"x\n{}\n", b"1\n[]\n", b"1\n{}\n"])
def test_what_another_version_wrote(data: bytes) -> None:
    with pytest.raises((ValueError, TypeError, KeyError)):
        window_encoding.unpack(data)


@pytest.mark.parametrize("through", ["store", "folder"])
def test_every_byte_arrives_as_it_was_published(through: str, tmp_path: Path) -> None:
    data = bytes(range(256)) * 3
    exchange: Exchange
    if through == "folder":
        exchange = FolderExchange(tmp_path, "prefix")
    else:
        from torch.distributed import TCPStore

        store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        exchange = StoreExchange(store, "prefix")
    assert exchange.read(["own/0", "own/1"]) == {}
    exchange.publish("own/0", data)
    assert exchange.read(["own/0", "own/1"]) == {"own/0": data}
    exchange.publish("own/0", b"")
    exchange.publish("own/1", data[:7])
    assert exchange.read(["own/0", "own/1"]) == {"own/0": b"", "own/1": data[:7]}
