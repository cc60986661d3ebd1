"""Rounds of collectives on one communicator: one member publishes calls and data, and meets peers.

Neighbouring rounds that are alike are published, compared and finished in one go: that is what
lets a small operation cost little.  Nothing of it can be seen, as members still get through the
rounds one after the other and nobody past one that a peer has not published, or called differently.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

import torch

from hanglab.harness.nccl_emulated.segment import ROUNDS, SHORT_BYTES, SLOTS, Segment

#: A kernel: it gives back control wherever it can get no further at the moment.
Kernel = Generator[None, None, None]
#: Data of all members for rounds that are alike, shape [size, rounds, bytes], uint8.
Parts = torch.Tensor


class Joint:
    """A kernel of one round that no member finishes before all have published it.

    ``length`` is in bytes.  Those whose ``alike`` are equal have data of one shape and type, and
    can be finished in one go; None is like nothing.
    """

    __slots__ = ("alike", "call", "finish", "length", "rounds", "source", "target")

    def __init__(
        self,
        rounds: Rounds,
        call: int,
        length: int,
        source: torch.Tensor | Callable[[], torch.Tensor] | None,
        target: torch.Tensor | None,
        finish: Callable[[Sequence[Joint], Parts], None],
        alike: object,
    ) -> None:
        self.rounds = rounds
        self.call = call
        self.length = length
        self.source = source
        self.target = target
        self.finish = finish
        self.alike = alike

    def __call__(self) -> Kernel:
        """The kernel by itself, where it is a part of another one."""
        rounds, alone = self.rounds, (self,)
        while not rounds.post(alone):
            yield
        while not rounds.common:
            yield
        rounds.settle(alone)


class Rounds:
    """One member's end.  ``ring`` wakes all peers."""

    def __init__(self, segment: Segment, rank: int, ring: Callable[[], None]) -> None:
        self.rank = rank
        self.size = segment.size
        self._segment = segment
        self._ring = ring
        self._next = segment.written[rank]

    @property
    def open(self) -> int:
        """Rounds that this member has published and is not through with."""
        return self._next - self._segment.read[self.rank]

    # Runs of rounds that all members publish.

    def post(self, run: Sequence[Joint]) -> int:
        """Publish as many as there is room for, from the first; returns how many."""
        segment, me, begin = self._segment, self.rank, self._next
        oldest, at = min(segment.read), begin % ROUNDS
        count = min(len(run), oldest + ROUNDS - begin, ROUNDS - at)
        slots = oldest + SLOTS - begin
        done = 0
        while done < count:
            first = run[done]
            if first.length > SHORT_BYTES:
                if done >= slots:
                    break
                stop = done + 1
            else:
                stop = _end_of_alike(run, done, count)
            if first.source is not None and first.length:
                try:
                    packed = _packed(run[done:stop])
                    self._parts(begin + done, stop - done, first.length)[me].copy_(packed)
                except Exception:
                    if done or self.open:
                        break  # it is met when it is the first
                    raise
            done = stop
        if done:
            segment.calls[me, at : at + done] = [one.call for one in run[:done]]
            segment.written[me] = self._next = begin + done
            self._ring()
        return done

    @property
    def common(self) -> int:
        """Count of this member's open rounds that all members have published alike.

        A round that a member calls differently is never finished: NCCL's kernels would wait in
        each other's buffers for what never comes.
        """
        segment, me = self._segment, self.rank
        begin = segment.read[me]
        at = begin % ROUNDS
        count = min(min(segment.written) - begin, ROUNDS - at)
        if count <= 0:
            return 0
        calls = segment.calls[:, at : at + count]
        same = (calls == calls[me]).all(axis=0)
        return count if same.all() else int(same.argmin())

    def settle(self, run: Sequence[Joint]) -> int:
        """Finish the first open rounds, which :attr:`common` has counted; returns how many."""
        begin = self._segment.read[self.rank]
        done, long = 0, False
        while done < len(run):
            first = run[done]
            if first.length > SHORT_BYTES:
                stop, long = done + 1, True
            else:
                stop = _end_of_alike(run, done, len(run))
            try:
                first.finish(run[done:stop], self._parts(begin + done, stop - done, first.length))
            except Exception:
                if done:
                    break
                self._finish(begin + 1, ROUNDS)
                raise
            done = stop
        self._finish(begin + done, SLOTS if long else ROUNDS)
        return done

    # Rounds that not everybody waits in.

    def publish(
        self, call: int, length: int, data: torch.Tensor | None
    ) -> Generator[None, None, int]:
        """Publish one round of so many bytes, with them if they are this member's, shape [length].

        Returns the round's number.
        """
        segment, me, round_ = self._segment, self.rank, self._next
        places = ROUNDS if length <= SHORT_BYTES else SLOTS
        while min(segment.read) + places <= round_:
            yield
        segment.calls[me, round_ % ROUNDS] = call
        if data is not None:
            self._parts(round_, 1, length)[me, 0].copy_(data)
        segment.written[me] = self._next = round_ + 1
        self._ring()
        return round_

    def meet(self, members: Sequence[int], call: int, round_: int) -> Kernel:
        """Returns once those members have published this round with the same call."""
        segment = self._segment
        for member in members:
            while segment.written[member] <= round_:
                yield
        while any(segment.calls[member, round_ % ROUNDS] != call for member in members):
            yield  # for ever: the kernels wait in each other's buffers

    def parts(self, round_: int, length: int) -> torch.Tensor:
        """Data of all members in a round, shape [size, length], uint8."""
        return self._parts(round_, 1, length)[:, 0]

    def release(self, round_: int, length: int) -> None:
        """This round has been read."""
        self._finish(round_ + 1, ROUNDS if length <= SHORT_BYTES else SLOTS)

    def _parts(self, round_: int, count: int, length: int) -> Parts:
        if length <= SHORT_BYTES:
            return self._segment.shorts(round_, count, length)
        return self._segment.slots(round_, length)

    def _finish(self, read: int, places: int) -> None:
        before = self._segment.read[self.rank]
        self._segment.read[self.rank] = read
        half = places // 2
        if before // half != read // half:
            self._ring()  # who waits for room


def _end_of_alike(run: Sequence[Joint], begin: int, end: int) -> int:
    alike = run[begin].alike
    stop = begin + 1
    while alike is not None and stop < end and run[stop].alike == alike:
        stop += 1
    return stop


def _packed(run: Sequence[Joint]) -> torch.Tensor:
    """Bytes that kernels that are alike hand over, shape [n, length]."""
    sources = [one.source() if callable(one.source) else one.source for one in run]
    tensors = [one for one in sources if one is not None]
    joined = torch.stack(tensors) if len(tensors) > 1 else tensors[0].detach()
    return joined.reshape(len(tensors), -1).view(torch.uint8)
