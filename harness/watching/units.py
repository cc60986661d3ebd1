"""Texts that start a watch on a host: a unit for systemd, a prolog for Slurm."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

_SYSTEMD = """\
# /etc/systemd/system/hanglab-watch.service
[Unit]
Description=Watches distributed training jobs, and captures those that stop
After=network-online.target
Wants=network-online.target

[Service]
ExecStart={command} watch --metrics 127.0.0.1:9477
Restart=on-failure
RestartSec=10
StateDirectory=hanglab
StateDirectoryMode=0700
UMask=0077
# It runs as root without root's rights, save these two: to look into the processes of all users
# (their environment, descriptors, counters and stacks), and to read what they left for their
# launcher. Add CAP_KILL for --then kill, and CAP_SYS_ADMIN to count the connections of jobs that
# have a network namespace of their own.
CapabilityBoundingSet=CAP_SYS_PTRACE CAP_DAC_READ_SEARCH
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=read-only
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectClock=yes
ProtectHostname=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
SystemCallArchitectures=native
# Neither PrivateTmp nor ProtectProc: sockets of recorded jobs are in /tmp, jobs in /proc.
ReadWritePaths=/tmp
# A watch is never in a job's way.
Nice=10
CPUWeight=20
IOSchedulingClass=idle

[Install]
WantedBy=multi-user.target
"""

_SLURM = """\
#!/bin/sh
# Prolog= in slurm.conf: starts one watch on the node with its first job; it ends by itself once
# no job has run there for ten minutes, so that no epilog is needed. A node that runs systemd is
# better off with its unit.
umask 077
mkdir -p /run/hanglab /var/lib/hanglab
setsid flock --nonblock /run/hanglab/watch.lock {command} watch --until-idle 600 \\
    </dev/null >>/var/lib/hanglab/watch.log 2>&1 &
# A prolog that fails would drain the node.
exit 0
"""

UNITS = {"systemd": _SYSTEMD, "slurm": _SLURM}


def unit(kind: str) -> str:
    """Text of a unit that starts this installation of hanglab; ``kind`` is one of UNITS."""
    return UNITS[kind].replace("{command}", shlex.quote(_command()))


def _command() -> str:
    beside = Path(sys.executable).with_name("hanglab")
    return str(beside) if beside.exists() else "hanglab"
