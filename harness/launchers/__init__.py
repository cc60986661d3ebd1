"""Launchers: how the ranks of a job are started, watched and ended, one file each."""
