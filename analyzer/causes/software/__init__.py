"""Ranks that ended, raised, or do something else while their peers wait."""
