"""Ranks that do not make the same operations in the same order with the same arguments."""
