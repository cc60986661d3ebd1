"""Samples of what surrounds this host's ranks: once a second and at the capture, never raising."""
