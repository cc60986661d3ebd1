"""Flight Recorder buffers of a Case's ranks: of each, the one that tells most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hanglab.analyzer.code_owners import CodeMap, Owner
from hanglab.analyzer.flight_recorder import DumpError, load_many
from hanglab.analyzer.flight_recorder.columns import RankDump
from hanglab.analyzer.verdict import Unusable
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case.reader import RankCase


def best_buffers(
    ranks: Sequence[RankCase], unusable: list[Unusable], taken: Mapping[int, bytes]
) -> dict[int, RankDump]:
    """Each rank's Flight Recorder dump: the one with stacks, unless the other knows more.

    ``taken`` are dumps of running ranks that nobody has written into the Case.
    """
    asked = [
        (data, rank.rank, str(rank.folder / file.name))
        for rank in ranks
        for file in (files.FLIGHT_RECORDER_STACKS, files.FLIGHT_RECORDER)
        if (data := rank.read(file)) is not None
    ]
    asked += [(data, rank, f"rank {rank}") for rank, data in taken.items()]
    best: dict[int, RankDump] = {}
    for (_, rank_number, source), loaded in zip(asked, load_many(asked), strict=True):
        if isinstance(loaded, DumpError):
            unusable.append(Unusable(file=source, reason=str(loaded)))
        elif rank_number not in best or _latest(loaded) > _latest(best[rank_number]):
            best[rank_number] = loaded
    return best


def _latest(dump: RankDump) -> int:
    return int(dump.entries.record_id[-1]) if dump.entries and len(dump.entries) else -1


def drop_own_frames(dump: RankDump, code: CodeMap) -> None:
    """Take the recorder and the harness out of the stacks: they are no part of the job."""
    if dump.entries is not None:
        dump.entries.stacks = [
            tuple(frame for frame in stack if code.owner(frame.file) is not Owner.RECORDER)
            for stack in dump.entries.stacks
        ]
