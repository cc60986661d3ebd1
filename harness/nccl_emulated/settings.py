"""Settings of the emulated device, from the environment."""

from __future__ import annotations

import os
from dataclasses import dataclass

from hanglab.harness.errors import HanglabError


class EmulationError(HanglabError, RuntimeError):
    """The emulated device cannot do what it was asked for."""

    advice = "docs/nccl-emulated.md says what the emulated device can do."


@dataclass(frozen=True)
class DeviceSettings:
    """The defaults are those of a data-centre GPU as far as one is documented."""

    #: Kernels that hosts may launch ahead of the device: CUDA blocks the next launch.
    launch_queue: int = 1024
    #: NCCL kernels that fit on the device side by side.
    slots: int = 8
    #: Devices that ``torch.cuda.device_count`` tells; 0 for as many as the host has ranks.
    devices: int = 0
    #: Memory of a device, bytes.
    memory: int = 16 << 30


#: Formats of dumps, and the key under which each has the version of NCCL: 2.9 is torch 2.8's.
LIBRARY_KEYS = {"2.9": "nccl_version", "2.10": "comm_lib_version", "2.11": "comm_lib_version"}
#: Formats whose entries of all_to_all have both split lists.
WITH_SPLIT_LISTS = frozenset({"2.11"})
_FORMAT = "HANGLAB_EMULATED_DUMP_FORMAT"
_HOOKED = "HANGLAB_EMULATED_NCCL2"
_VARIABLES = {
    "launch_queue": "HANGLAB_EMULATED_LAUNCH_QUEUE",
    "slots": "HANGLAB_EMULATED_SLOTS",
    "devices": "HANGLAB_EMULATED_DEVICES",
    "memory": "HANGLAB_EMULATED_MEMORY",
}


def read_settings() -> DeviceSettings:
    """Settings of this process; raises EmulationError for what makes no sense."""
    dump_format()
    given = {}
    for field, variable in _VARIABLES.items():
        text = os.environ.get(variable)
        if text is None:
            continue
        if not text.isdecimal() or (int(text) < 1 and field != "devices"):
            raise EmulationError(
                f"{variable} is {text!r}, and not a whole number.",
                f"Unset {variable}, or give a number such as 8.",
            )
        given[field] = int(text)
    return DeviceSettings(**given)


def dump_format() -> str:
    """Format of this process's dumps; raises EmulationError for one that is not known."""
    text = os.environ.get(_FORMAT, "2.10")
    if text not in LIBRARY_KEYS:
        raise EmulationError(
            f"{_FORMAT} is {text!r}, and not one of {', '.join(LIBRARY_KEYS)}.",
            f"Unset {_FORMAT}, or give one of them.",
        )
    return text


def is_nccl2() -> bool:
    """True where the evidence is to be that of nccl2, which torch 2.15 has for ``nccl``."""
    return os.environ.get(_HOOKED, "0") == "1"
