"""Hooks put back what they replaced, and leave what others put in its place since."""

from __future__ import annotations

from collections.abc import Callable

from hanglab.recorder.rank.hooks import Hooks


class Owner:
    @staticmethod
    def greet() -> str:
        return "original"


def test_the_original_comes_back_with_its_binding() -> None:
    before = vars(Owner)["greet"]
    hooks = Hooks()
    hooks.put(Owner, "greet", staticmethod(lambda: "ours"))
    assert Owner.greet() == "ours"
    assert hooks and hooks.has(Owner) and hooks.has(Owner, "greet")
    hooks.remove()
    assert vars(Owner)["greet"] is before
    assert not hooks and not hooks.has(Owner)


def test_what_somebody_put_there_since_stays() -> None:
    before = vars(Owner)["greet"]
    hooks = Hooks()
    hooks.put(Owner, "greet", staticmethod(lambda: "ours"))
    ours: Callable[[], str] = Owner.greet
    theirs = staticmethod(lambda: f"theirs over {ours()}")
    Owner.greet = theirs  # type: ignore[method-assign, assignment]
    try:
        hooks.remove()
        assert Owner.greet() == "theirs over ours"
    finally:
        Owner.greet = before  # type: ignore[method-assign]
