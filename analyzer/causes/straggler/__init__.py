"""Ranks that are slower than their peers, and why."""
