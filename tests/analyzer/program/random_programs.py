"""Random healthy Programs: layouts of groups, a loop that repeats, operations of every kind."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from hanglab.analyzer.program.program import COLLECTIVES, ROOTED, Action, Program, ProgramGroup

_DTYPES = ("Float", "Float", "Float", "BFloat16", "Long")
_SIZES = (1, 2, 8, 64, 64, 128, 1000)


def random_layout(random: Random, world: int) -> tuple[ProgramGroup, ...]:
    """The world, and groups as data, tensor and pipeline parallelism would make them."""
    everybody = tuple(range(world))
    groups = [ProgramGroup("0", everybody, "default_pg")]
    kind = random.choice(("world", "world", "grid", "grid", "random"))
    if kind == "grid" and world >= 4:
        tensor = random.choice([t for t in (1, 2, 4, 8) if world % t == 0 and t <= world])
        rest = world // tensor
        pipeline = random.choice([p for p in (1, 2, 4) if rest % p == 0])
        data = rest // pipeline
        layers = (
            ("TENSOR", range(pipeline), range(data), range(tensor)),
            ("DATA", range(pipeline), range(tensor), range(data)),
            ("PIPELINE", range(data), range(tensor), range(pipeline)),
        )

        def place(description: str, i: int, j: int, k: int) -> int:
            stage, row, column = {
                "TENSOR": (i, j, k),
                "DATA": (i, k, j),
                "PIPELINE": (k, i, j),
            }[description]
            return (stage * data + row) * tensor + column

        for description, first, second, third in layers:
            for i in first:
                for j in second:
                    ranks = tuple(place(description, i, j, k) for k in third)
                    if len(ranks) > 1:
                        groups.append(ProgramGroup(str(len(groups)), ranks, description))
    elif kind == "random" and world >= 3:
        for number in range(random.randint(1, 4)):
            size = random.randint(2, world)
            members = tuple(sorted(random.sample(everybody, size)))
            groups.append(ProgramGroup(str(number + 1), members, f"group_{number + 1}"))
    return tuple(groups)


#: An operation, and for point-to-point sender and receiver within the group.
Event = tuple[Action, tuple[int, int] | None]


class _ProgramWriter:
    """Appends operations to all ranks that take part in them."""

    def __init__(self, groups: tuple[ProgramGroup, ...], world: int) -> None:
        self._groups = groups
        self._actions: list[list[Action]] = [[] for _ in range(world)]
        self._batches = 0

    def perform(self, event: Action, peers: tuple[int, int] | None = None) -> None:
        members = self._groups[event.group].members
        if peers is None:
            for member in members:
                self._actions[member].append(event)
            return
        sender, receiver = peers
        if event.batch:
            # Both sides send and receive at once.
            self._batches += 1
            for me, other in ((sender, receiver), (receiver, sender)):
                for op in ("send", "recv"):
                    self._actions[members[me]].append(
                        replace(event, op=op, peer=other, batch=self._batches)
                    )
            return
        self._actions[members[sender]].append(replace(event, op="send", peer=receiver))
        self._actions[members[receiver]].append(replace(event, op="recv", peer=sender))

    def program(self) -> Program:
        return Program(self._groups, tuple(tuple(actions) for actions in self._actions))


def _random_event(
    random: Random, groups: tuple[ProgramGroup, ...], site: int, *, p2p: bool
) -> Event:
    index = random.randrange(len(groups))
    members = groups[index].members
    numel = random.choice(_SIZES)
    joins = random.random() < 0.15
    if p2p and len(members) > 1 and random.random() < 0.3:
        sender, receiver = random.sample(range(len(members)), 2)
        event = Action("send", index, site=site, numel=numel, joins=joins)
        return replace(event, batch=int(random.random() < 0.3)), (sender, receiver)
    op = random.choice(("all_reduce", "all_reduce", "all_reduce", *COLLECTIVES))
    event = Action(
        op,
        index,
        site=site,
        numel=0 if op == "barrier" else numel,
        dtype=random.choice(_DTYPES) if op != "barrier" else "Float",
        root=random.randrange(len(members)) if op in ROOTED else None,
        overlap=random.random() < 0.2 and op not in ROOTED,
        joins=joins,
    )
    return event, None


def _everywhere(random: Random, groups: tuple[ProgramGroup, ...], event: Event) -> list[Event]:
    """The event in all groups of its kind, as parallel layouts do it, or in its group alone."""
    action, peers = event
    description = groups[action.group].description
    alike = [i for i, group in enumerate(groups) if group.description == description]
    if len(alike) == 1 or random.random() < 0.2:
        return [event]
    return [(replace(action, group=index), peers) for index in alike]


def random_program(
    random: Random, *, world: int, p2p: bool = True, length: int = 8, repeats: int = 6
) -> Program:
    """A loop of up to ``length`` operations, some before and some after it, and a last barrier."""
    groups = random_layout(random, world)
    writer = _ProgramWriter(groups, world)
    site = 10

    def events(count: int) -> list[Event]:
        nonlocal site
        found: list[Event] = []
        for _ in range(count):
            # Some lines are called twice in a row, from a helper.
            site += random.choice((0, 1, 1, 1))
            found += _everywhere(random, groups, _random_event(random, groups, site, p2p=p2p))
        site += 1
        return found

    def perform(found: list[Event]) -> None:
        for event, peers in found:
            writer.perform(event, peers)

    perform(events(random.randint(0, 3)))
    body = events(random.randint(1, length))
    for _ in range(random.randint(1, repeats)):
        perform(body)
    perform(events(random.randint(0, 3)))
    writer.perform(Action("barrier", 0, site=site + 1, numel=0, joins=True))
    return writer.program()
