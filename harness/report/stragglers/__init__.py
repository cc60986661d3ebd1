"""Seeing stragglers: what a Case says of its ranks' sections, as a table and as a picture."""
