"""Ranks that wait for their input."""
