"""The first number of a group at which its members do not do the same, and who deviates."""

from __future__ import annotations

from hanglab.analyzer.matching.call_differences import GroupDivergences, call_differences
from hanglab.analyzer.matching.call_lookup import CallLookup
from hanglab.analyzer.matching.calls import Divergence
from hanglab.analyzer.matching.divergent_call_site import find_divergent_call_site
from hanglab.analyzer.matching.line_shifts import line_shift
from hanglab.analyzer.matching.missing_votes import missing_votes_at
from hanglab.analyzer.matching.sequences import Sequences


def find_divergences(sequences: Sequences, lookup: CallLookup, *, stuck: bool) -> GroupDivergences:
    """``stuck`` says that some member waits in this group."""
    if len(sequences.histories) < 2:
        return GroupDivergences()
    found = call_differences(sequences, lookup)
    hard = found.first
    if stuck:
        soft = line_shift(sequences, lookup, hard.seq if hard is not None else None)
        if soft is not None:
            found.first = soft
            # From there on it is other operations that meet.
            found.silent = [one for one in found.silent if one.seq < soft.seq]
        elif hard is not None and not hard.deviating:
            divergent = find_divergent_call_site(sequences, lookup, hard.seq)
            if divergent is not None and not _may_be_most(sequences, divergent):
                found.first = divergent
    return found


def _may_be_most(sequences: Sequences, divergent: Divergence) -> bool:
    """True if members that nobody heard of may have gone the same way."""
    missing_votes = missing_votes_at(sequences, divergent.seq)
    known = len(sequences.group.members) - len(missing_votes.unknown_calls)
    return missing_votes.may_be_majority(len(divergent.deviating), known)
