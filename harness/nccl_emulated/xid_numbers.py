"""Errors that NVIDIA's driver tells in the kernel's log: words by number.

After docs.nvidia.com/deploy/xid-errors; those that hang a job or end one.
"""

from __future__ import annotations

from typing import Final

XID_WORDS: Final = {
    13: "Graphics Exception",
    31: "MMU Fault: ENGINE GRAPHICS faulted",
    43: "Ch 00000010",
    48: "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer",
    62: "Internal micro-controller halt",
    74: "NVLink: fatal error detected on link 0",
    79: "GPU has fallen off the bus.",
    94: "Contained: CE User Channel, RST: No, D-RST: No",
    95: "Uncontained: LTC TAG, RST: Yes, D-RST: No",
    119: "Timeout waiting for RPC from GSP!",
}
