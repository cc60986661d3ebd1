"""Shapes of jobs whose ranks have trades: prefill and decode, drafts, encoders, moves."""

from __future__ import annotations

from random import Random
from typing import Any

from hanglab.harness.trials.programs import Group, Issue, Program
from hanglab.harness.trials.shapes.building import Thread, Waits, program, splits, world


def prefill_and_decode(random: Random) -> Program:
    """Some ranks read prompts, others answer them: caches are sent layer by layer in between.

    Requests go to the decoders in turn, or as they come, so some have none for long.
    """
    width, decoders = random.choice(((1, 2), (1, 4), (2, 1), (2, 2), (2, 3), (3, 1)))
    size, layers, requests = width * (decoders + 1), random.randint(1, 3), random.randint(2, 8)
    batched, turns = random.random() < 0.5, random.random() < 0.5
    groups = {"0": world(size)}
    for first in range(0, size, width):
        name = "decode" if first else "prefill"
        groups[str(len(groups))] = Group(tuple(range(first, first + width)), name)
    threads = [Thread(random) for _ in range(size)]

    def layer(rank: int, numel: int, line: int) -> None:
        threads[rank].compute(0.1, 0.6)
        if width > 1:
            group = str(1 + rank // width)
            threads[rank].issue(group, "all_reduce", numel=numel, line=line)

    def hand_over(rank: int, kind: str, peer: int, numel: int, number: int) -> None:
        line, wait = (20, "never") if kind == "send" else (24, "stream")
        if batched and number + 1 == layers:
            issues = [Issue("0", kind, peer=peer, numel=numel)] * layers
            threads[rank].batch(issues, line=line)
        elif not batched:
            waits: Waits = "never" if wait == "never" else "stream"
            threads[rank].issue("0", kind, peer=peer, numel=numel, wait=waits, line=line)

    for request in range(requests):
        numel = random.randint(8, 64)
        decoder = request % decoders if turns else random.randrange(decoders)
        for place in range(width):
            peer = (1 + decoder) * width + place
            for number in range(layers):
                layer(place, numel, 10)
                hand_over(place, "send", peer, numel, number)
            for number in range(layers):
                hand_over(peer, "recv", place, numel, number)
        for _ in range(random.randint(1, 4)):
            for place in range(width):
                for _ in range(layers):
                    layer((1 + decoder) * width + place, 8, 12)
    for thread in threads:
        thread.issue("0", "barrier", wait="host", line=30)
    return program("prefill_and_decode", groups, [[thread] for thread in threads])


def drafts(random: Random) -> Program:
    """Speculative decoding: a small model drafts tokens on its rank, the large one checks them.

    How many come, and how many are kept, is of the data; the checkers tell each other first.
    """
    size, rounds, layers = random.randint(3, 6), random.randint(1, 10), random.randint(1, 3)
    counted, alike = random.random() < 0.5, random.random() < 0.3
    leader = 1
    groups = {"0": world(size), "1": Group(tuple(range(1, size)), "target")}
    mail = random.choice(("0", "2"))
    if mail == "2":
        groups["2"] = Group((0, leader), "mail")
    threads = [Thread(random) for _ in range(size)]
    for thread in threads:
        thread.issue("0", "barrier", wait="host", line=8)
    for _ in range(rounds):
        numel = 5 if alike else random.randint(1, 9)
        sent = (1, numel) if counted else (numel,)
        for rank, thread in enumerate(threads):
            if rank == 0:
                thread.compute(0.5, 4)
            for place, one in enumerate(sent):
                options: dict[str, Any] = {"numel": one, "dtype": "Long"}
                if rank == 0:
                    thread.issue(mail, "send", peer=leader, line=10 + place, **options)
                    continue
                if rank == leader:
                    line = 20 + place
                    thread.issue(mail, "recv", peer=0, wait="host", line=line, **options)
                thread.issue("1", "broadcast", root=leader, wait="host", line=24, **options)
            for _ in range(2 * layers if rank else 0):
                thread.compute(0.1, 0.4)
                thread.issue("1", "all_reduce", numel=16 * numel, line=30)
            kind, peer, line = ("recv", leader, 14) if rank == 0 else ("send", 0, 34)
            if rank <= leader:
                thread.issue(mail, kind, peer=peer, numel=2, dtype="Long", wait="host", line=line)
    for thread in threads:
        thread.issue("0", "barrier", wait="host", line=40)
    return program("drafts", groups, [[thread] for thread in threads])


def encoders(random: Random) -> Program:
    """Encoders of images send what they see to the ranks of the text, and get gradients back.

    A batch without images leaves an encoder idle; all encoders are reduced every step, or only
    where any of them had some.
    """
    count, share = random.choice(((1, 2), (1, 3), (2, 1), (2, 2), (2, 3), (3, 1), (4, 1)))
    steps, layers, always = random.randint(2, 8), random.randint(1, 3), random.random() < 0.5
    size, readers = count * (1 + share), tuple(range(count, count * (1 + share)))
    waits: Waits = random.choice(("host", "stream"))
    seen = random.choice((0.3, 0.7))
    groups = {
        "0": world(size),
        "1": Group(tuple(range(count)), "vision"),
        "2": Group(readers, "text"),
    }
    threads = [Thread(random) for _ in range(size)]
    for step in range(steps):
        images = [(reader, random.randint(4, 40)) for reader in readers if random.random() < seen]
        for reader, numel in images:
            threads[reader % count].compute()
            options = {"peer": reader, "numel": numel, "line": 10}
            threads[reader % count].issue("0", "send", wait="never", **options)
            options = {"peer": reader % count, "numel": numel, "line": 20}
            threads[reader].issue("0", "recv", wait=waits, **options)
        for reader in readers:
            for bucket in range(layers):
                threads[reader].compute()
                threads[reader].issue("2", "all_reduce", numel=64 << bucket, line=24)
        for reader, numel in images:
            options = {"peer": reader % count, "numel": numel, "line": 26}
            threads[reader].issue("0", "send", wait="never", **options)
            options = {"peer": reader, "numel": numel, "line": 12}
            threads[reader % count].issue("0", "recv", wait=waits, **options)
        for encoder in range(count if images or always else 0):
            threads[encoder].compute()
            threads[encoder].issue("1", "all_reduce", numel=256, line=14)
        for thread in threads if step % 3 == 2 or step + 1 == steps else ():
            thread.issue("0", "all_reduce", numel=1, wait="host", line=30)
    return program("encoders", groups, [[thread] for thread in threads])


def moves(random: Random) -> Program:
    """Shards moved to another layout now and then: to whom, and how much, is of a plan all share.

    In between each of the old groups trains, then each of the new, of other members.
    """
    size, turns, steps = random.choice((4, 6, 8)), random.randint(1, 4), random.randint(1, 3)
    batched, checks = random.random() < 0.6, random.random() < 0.5
    half = size // 2
    groups = {"0": world(size)}
    groups |= {str(1 + n): Group(tuple(range(n * half, (n + 1) * half)), "before") for n in (0, 1)}
    groups |= {str(3 + n): Group(tuple(range(n, size, 2)), "after") for n in (0, 1)}
    threads = [Thread(random) for _ in range(size)]
    for turn in range(turns):
        for rank, thread in enumerate(threads):
            group = str(3 + rank % 2) if turn % 2 else str(1 + rank // half)
            for step in range(steps):
                thread.compute()
                thread.issue(group, "all_gather", numel=32 << step, line=10)
                thread.issue(group, "reduce_scatter", numel=32 << step, line=12)
        plan = splits(random, tuple(range(size)))
        pairs = [(a, b) for a in range(size) for b in range(size) if a != b and plan[a][b] > 5]
        batches: list[list[Issue]] = [[] for _ in threads]
        for a, b in pairs:
            ends = ((a, Issue("0", "send", peer=b, numel=plan[a][b])),)
            for rank, issue in (*ends, (b, Issue("0", "recv", peer=a, numel=plan[a][b]))):
                batches[rank].append(issue)
                if not batched:
                    options = {"peer": issue.peer, "numel": issue.numel, "line": 22}
                    threads[rank].issue("0", issue.kind, wait="host", **options)
        for thread, issues in zip(threads, batches, strict=True):
            thread.batch(issues if batched else [], wait="host", line=20)
            if checks:
                thread.issue("0", "barrier", wait="host", line=24)
    for thread in threads:
        thread.issue("0", "barrier", wait="host", line=30)
    return program("moves", groups, [[thread] for thread in threads])
