"""Scenarios over many runs: how often each passes, since when, and if it is flaky."""
