"""Faults that are done to a job from outside, one file each, with the proof that it struck."""
