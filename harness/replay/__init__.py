"""Runs a recorded job's Program for real, and compares what it comes to."""
