"""Corpora: labelled folders, read, analyzed in parallel, and compared with their truth."""
