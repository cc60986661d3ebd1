"""Shards of a suite, which ran on several machines, united into one run."""
