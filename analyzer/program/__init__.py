"""A job's communication, abstracted: simulated, made to fail, rendered as dumps, read back."""

from hanglab.analyzer.program.program import Action, Program, ProgramGroup

__all__ = ["Action", "Program", "ProgramGroup"]
