"""Faults done to a node's container by its host, one file each; every one has a probe."""
