"""Readings of the system that recorder and harness share: processes, control groups, disks."""
