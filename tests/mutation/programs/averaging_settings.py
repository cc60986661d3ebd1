"""What averaging_program.py imports from its own folder."""

STEPS = 12
