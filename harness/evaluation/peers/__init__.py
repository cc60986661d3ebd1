"""Peers: other tools that name a cause, each behind an adapter in a file of its own."""
