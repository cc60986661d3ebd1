"""Detectors: pure functions from evidence to proposals for one cause each, by category."""
