"""Processes that the machine denies something: memory, disk, descriptors, processor, tasks."""
