"""Hooks: attributes of classes and modules that are replaced for a while."""

from __future__ import annotations

from typing import Any


class Hooks:
    """Replaced attributes, so that all of them can be put back.

    Whoever replaces an attribute after us keeps us below: what he put there stays when
    ours is to go, and ours has to go on calling the original.
    """

    def __init__(self) -> None:
        #: (owner, attribute, the original entry of its __dict__, what was put there)
        self._placed: list[tuple[Any, str, Any, Any]] = []
        #: Owner -> names of the attributes; asked for in calls that are recorded.
        self._names: dict[Any, set[str]] = {}

    def __bool__(self) -> bool:
        return bool(self._placed)

    def has(self, owner: Any, name: str | None = None) -> bool:
        """True if an attribute of ``owner``, or the one called ``name``, was replaced."""
        names = self._names.get(owner)
        return names is not None and (name is None or name in names)

    def put(self, owner: Any, name: str, ours: Any) -> None:
        # getattr would give an object without the binding, and restoring it would
        # leave a method that gets no self.
        self._placed.append((owner, name, vars(owner)[name], ours))
        self._names.setdefault(owner, set()).add(name)
        setattr(owner, name, ours)

    def remove(self, of: Any = None) -> None:
        """Put the originals back, those of one owner or all, unless somebody has replaced ours
        meanwhile."""
        if of is None:
            self._names.clear()
        else:
            self._names.pop(of, None)
        placed, self._placed = self._placed, []
        for owner, name, original, ours in reversed(placed):
            if of is not None and owner is not of:
                self._placed.insert(0, (owner, name, original, ours))
            elif vars(owner).get(name) is ours:
                setattr(owner, name, original)


class Hooked:
    """Base of what replaces attributes by its ``_hooks``, and puts them back again."""

    def __init__(self) -> None:
        self._hooks = Hooks()

    def uninstall(self) -> None:
        """Put the originals back, unless somebody has replaced ours meanwhile."""
        self._hooks.remove()
