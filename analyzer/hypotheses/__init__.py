"""Candidate faults, simulated and compared with what the job left."""
