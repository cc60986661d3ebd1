"""Mutation testing of training scripts: each mutant is broken on purpose, and must be found."""
