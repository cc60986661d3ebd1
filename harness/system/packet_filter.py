"""Rules of a node's packet filter, made and taken back from its host."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from hanglab.harness.system.namespaces import in_network

Rule = tuple[str, ...]
#: Comment by which our rules are told from others.
TAG = "hanglab"
MARK: Rule = ("-m", "comment", "--comment", TAG)


def add_rules(pid: int, rules: Sequence[Rule]) -> None:
    """Puts rules, each a chain and what follows it, before all others; all of them or none."""
    done: list[Rule] = []
    try:
        for rule in rules:
            in_network(pid, "iptables", "-w", "-I", *rule)
            done.append(rule)
    except OSError:
        remove_rules(pid, done)
        raise


def add_all(rules: Sequence[tuple[int, Sequence[Rule]]]) -> Callable[[], None]:
    """Add rules in several namespaces, by process id; returns a function that removes them all."""
    done: list[tuple[int, Sequence[Rule]]] = []

    def remove() -> None:
        for pid, mine in done:
            remove_rules(pid, mine)

    try:
        for pid, mine in rules:
            add_rules(pid, mine)
            done.append((pid, mine))
    except OSError:
        remove()
        raise
    return remove


def remove_rules(pid: int, rules: Sequence[Rule]) -> None:
    """Does nothing where the namespace has gone with its last process, and the rules with it."""
    if not os.path.exists(f"/proc/{pid}/ns/net"):
        return
    for rule in rules:
        in_network(pid, "iptables", "-w", "-D", *rule)


def counted(pid: int) -> int:
    """Packets that rules of ours have caught."""
    total = 0
    for table in ("INPUT", "OUTPUT"):
        for line in in_network(pid, "iptables", "-w", "-nvxL", table).splitlines()[2:]:
            words = line.split()
            if TAG in words:
                total += int(words[0])
    return total


def rules_of(pid: int) -> int:
    """Number of rules of ours."""
    listed = in_network(pid, "iptables", "-w", "-S").splitlines()
    return sum(f"--comment {TAG}" in line for line in listed)
