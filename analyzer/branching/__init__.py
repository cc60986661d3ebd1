"""Statements at which the ways of ranks part, found in the source that a Case holds."""
