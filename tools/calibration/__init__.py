"""Fits the table of probabilities that the analyzer gives its findings."""
