"""Whether a container is frozen, by the kernel's freezer."""

from __future__ import annotations

from hanglab.harness.probes.groups import group_folder
from hanglab.harness.probes.probe import Reading


class FreezerProbe:
    """Docker is asked to pause; the freezer's own file says whether it did."""

    def __init__(self, pid: int) -> None:
        self._folder, self._version = group_folder("freezer", pid)

    def struck(self) -> Reading:
        state = self._state()
        return Reading(state == "frozen", f"the freezer says {state}", {"freezer": state})

    def ended(self) -> Reading:
        if not self._folder.exists():
            return Reading(True, "the container has gone", {"freezer": None})
        state = self._state()
        return Reading(state == "thawed", f"the freezer says {state}", {"freezer": state})

    def _state(self) -> str:
        if self._version == 1:
            return (self._folder / "freezer.state").read_text().strip().lower()
        events = (self._folder / "cgroup.events").read_text().split("\n")
        return "frozen" if "frozen 1" in events else "thawed"
