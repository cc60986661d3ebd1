"""Keys of real stores, as the wrapper of their methods sees them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from installed import needs_torch

from hanglab.recorder.rank.store_keys import StoreKeys

pytestmark = needs_torch


@pytest.fixture
def keys() -> Iterator[StoreKeys]:
    from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

    watched = StoreKeys(lambda: 7)
    original = PrefixStore.__dict__["__init__"]
    watched.install(Store, PrefixStore, TCPStore)
    yield watched
    watched.uninstall()
    assert PrefixStore.__dict__["__init__"] is original


def used(keys: StoreKeys) -> set[tuple[str, str, str, int]]:
    return {(row["kind"], row["prefix"], row["key"], row["count"]) for row in keys.rows()}


def test_one_key_under_two_prefixes_is_two(keys: StoreKeys) -> None:
    from torch.distributed import HashStore, PrefixStore

    bottom = HashStore()
    first, second = PrefixStore("1", bottom), PrefixStore(prefix="2", store=bottom)
    inner = PrefixStore("plan", first)
    for store, times in ((bottom, 1), (first, 2), (second, 3), (inner, 4)):
        for _ in range(times):
            store.set("turn/5", "x")
    assert used(keys) == {
        ("set", "", "turn/5", 1),
        ("set", "1/", "turn/5", 2),
        ("set", "2/", "turn/5", 3),
        ("set", "1/plan/", "turn/5", 4),
    }
    assert bottom.get("1/plan/turn/5") == second.get("turn/5") == b"x"


def test_a_store_that_is_gone_leaves_its_prefix_to_no_other(keys: StoreKeys) -> None:
    from torch.distributed import HashStore, PrefixStore

    for _ in range(50):
        PrefixStore("old", HashStore()).set("a", "x")
    for _ in range(50):
        HashStore().set("a", "x")
    assert used(keys) == {("set", "old/", "a", 50), ("set", "", "a", 50)}


def test_a_wrong_prefix_raises_as_without_the_wrapper(keys: StoreKeys) -> None:
    from torch.distributed import HashStore, PrefixStore

    wrong: Any = PrefixStore
    with pytest.raises(TypeError, match="incompatible constructor arguments"):
        wrong(3, HashStore())
    with pytest.raises(TypeError, match="incompatible constructor arguments"):
        wrong("a")


def test_a_store_without_a_hash_works_as_without_the_wrapper(keys: StoreKeys) -> None:
    from torch.distributed import HashStore

    class Compared(HashStore):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = None  # type: ignore[assignment]

    store = Compared()
    store.set("a", "x")
    assert store.get("a") == b"x"
    assert used(keys) == {("set", "", "a", 1), ("wait", "", "a", 1)}


def test_what_the_main_thread_waits_for_has_its_prefix(keys: StoreKeys) -> None:
    from torch.distributed import HashStore, PrefixStore

    bottom = HashStore()
    seen: list[Any] = []

    def look() -> None:
        deadline = time.monotonic() + 30
        while not seen and time.monotonic() < deadline:
            seen.extend(row for row in keys.rows() if row["waiting"])
        bottom.set("plan/go", "x")

    watching = threading.Thread(target=look)
    watching.start()
    PrefixStore("plan", bottom).get("go")
    watching.join()
    assert [(one["prefix"], one["key"]) for one in seen] == [("plan/", "go")]


def test_who_makes_a_store_waits_there_for_the_others(keys: StoreKeys) -> None:
    from torch.distributed import DistStoreError, TCPStore

    seen: list[Any] = []
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.01):
            seen.extend(row for row in keys.rows() if row["waiting"])

    watching = threading.Thread(target=look)
    watching.start()
    with pytest.raises(DistStoreError):
        TCPStore("127.0.0.1", 0, 2, True, timedelta(seconds=1))
    over.set()
    watching.join()
    assert {(one["kind"], one["key"]) for one in seen} == {("join", "127.0.0.1:0")}
    assert keys.rows() == []
    assert TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False).port > 0


def test_a_call_that_writes_several_keys_sets_each(keys: StoreKeys) -> None:
    from torch.distributed import HashStore

    store = HashStore()
    store.multi_set(["a", "b"], ["x", "y"])
    assert used(keys) == {("set", "", "a", 1), ("set", "", "b", 1)}
    assert store.get("a") == b"x"


def test_all_keys_of_a_call_that_waits_are_kept_until_it_ends(keys: StoreKeys) -> None:
    from torch.distributed import HashStore

    bottom = HashStore()
    seen: list[Any] = []

    def look() -> None:
        deadline = time.monotonic() + 30
        while not seen and time.monotonic() < deadline:
            seen.extend(row for row in keys.rows() if row["waiting"])
        for key in ("a", "b" * 300, "b", "c"):
            bottom.set(key, "x")

    watching = threading.Thread(target=look)
    watching.start()
    bottom.wait(["a", "b" * 300, "b", "c"])
    watching.join()
    assert [(one["key"], one["others"]) for one in seen] == [("c", ["a", "b"])]
    assert all(row["others"] == [] for row in keys.rows())
