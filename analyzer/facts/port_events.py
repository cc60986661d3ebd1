"""Ports of InfiniBand or RoCE that went down and did not come back, by what NCCL warned of."""

from __future__ import annotations

import re

#: With NCCL_DEBUG=WARN or more; the device stands there since NCCL 2.18 (transport/net_ib.cc,
#: NVIDIA/nccl#905).
_EVENT = re.compile(
    r"NET/IB\w* ?: (?:(?P<port>[\w.-]+:\d+) )?Got async event : port (?P<event>error|active)"
)


def port_down(log: str) -> str | None:
    """The warning of a port that is down still; None where there is none, or all came back."""
    latest: dict[str, tuple[str, str]] = {}
    for line in log.splitlines():
        match = _EVENT.search(line)
        if match is not None:
            latest[match["port"] or ""] = (match["event"], line.strip()[:300])
    return next((line for event, line in latest.values() if event == "error"), None)
