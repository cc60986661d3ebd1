"""Proofs that a fault from outside struck and ended, each by another way than the fault's own."""
