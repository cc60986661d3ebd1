"""Faults that are done to a job from outside, one file each, and the conditions that time them."""
