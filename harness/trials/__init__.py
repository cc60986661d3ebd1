"""Trials of the analyzer: programs, faults and losses, played by a player that knows nothing of it.

What the analyzer takes for granted of a job, and of what it leaves, is written here a second time,
from torch's sources: neither side imports the other, so that a mistake of one is not the other's.
"""
