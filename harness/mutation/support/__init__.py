"""Modules that are copied beside mutants, or run inside their ranks; none imports hanglab."""
