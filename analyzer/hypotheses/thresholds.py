"""Limits and confidences of the simulated check, each with its unit and its reason."""

from __future__ import annotations

#: Ranks that are simulated at most: of those that wait alike a few stand for all.
SIMULATED_RANKS = 48
#: Ranks that stand for all who wait alike: one would be a majority of itself.
REPRESENTATIVES = 3
#: Operations of one rank that are simulated at most, the latest.
SIMULATED_OPERATIONS = 256
#: Operations that a host may have enqueued: the dumps say how many it had.
UNLIMITED = 1 << 30
#: Numbers up to a difference at which an operation is tried to have been left out.
TRIED_NUMBERS = 8
#: Programs without a fault that are simulated at most, where it may have been at several places.
TRIED_PROGRAMS = 16
#: Confidence at most in a culprit whose fault does not leave the evidence that was found.
NOT_REPRODUCED = 0.5
#: Confidence in the one of several candidates whose fault alone leaves the evidence.
TIE_DECIDED = 0.7
#: Confidence in another fault that leaves the same evidence.
ALTERNATIVE = 0.1
