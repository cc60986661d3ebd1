"""GPUs by NVML: use, power, clocks and why they are lower, memory, ECC errors, whose they are."""

from __future__ import annotations

import glob
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from hanglab.recorder.case.host_records import GpuSample

T = TypeVar("T")
#: NVML's names of reasons for lower clocks, less those of a GPU that has nothing to do.
_REASONS = {
    0x2: "applications_clocks",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake",
    0x100: "display_clocks",
}


class Gpus:
    """NVML, opened where there is a device.  ``missing`` says why there is nothing to read."""

    def __init__(self) -> None:
        self.missing = ""
        self._nvml: Any = None
        self._handles: list[Any] = []
        if not glob.glob("/dev/nvidia[0-9]*"):
            self.missing = "no NVIDIA GPU on this host"
            return
        try:
            import pynvml

            pynvml.nvmlInit()
            self._nvml = pynvml
            self._handles = [
                pynvml.nvmlDeviceGetHandleByIndex(index)
                for index in range(pynvml.nvmlDeviceGetCount())
            ]
        except ImportError:
            self.missing = "nvidia-ml-py is not installed"
        except Exception as error:
            self.missing = f"NVML: {error}"

    def sample(self, processes: Mapping[int, int]) -> list[GpuSample]:
        """``processes``: rank -> pid."""
        return [self._gpu(index, handle, processes) for index, handle in enumerate(self._handles)]

    def _gpu(self, index: int, handle: Any, processes: Mapping[int, int]) -> GpuSample:
        nvml = self._nvml

        def ask(question: Callable[[], T]) -> T | None:
            try:
                return question()
            except nvml.NVMLError:
                return None

        memory = ask(lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
        rates = ask(lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
        power = ask(lambda: nvml.nvmlDeviceGetPowerUsage(handle))
        limit = ask(lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle))
        reasons = ask(lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)) or 0
        users = ask(lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle)) or []
        pids = {user.pid for user in users}
        return GpuSample(
            index=index,
            uuid=_text(ask(lambda: nvml.nvmlDeviceGetUUID(handle))),
            name=_text(ask(lambda: nvml.nvmlDeviceGetName(handle))),
            ranks=sorted(rank for rank, pid in processes.items() if pid in pids),
            utilization=rates.gpu if rates else None,
            memory_used_bytes=memory.used if memory else None,
            memory_bytes=memory.total if memory else None,
            power_w=power / 1000 if power is not None else None,
            power_limit_w=limit / 1000 if limit is not None else None,
            clock_mhz=ask(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
            clock_limit_mhz=ask(lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM)),
            temperature=ask(
                lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)
            ),
            throttled=[name for bit, name in _REASONS.items() if reasons & bit],
            pci=_text(ask(lambda: nvml.nvmlDeviceGetPciInfo(handle).busId)),
            ecc_errors=ask(
                lambda: nvml.nvmlDeviceGetTotalEccErrors(
                    handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
                )
            ),
        )

    def close(self) -> None:
        if self._nvml is not None:
            try:
                self._nvml.nvmlShutdown()
            except self._nvml.NVMLError:
                return


def _text(value: str | bytes | None) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value or ""
