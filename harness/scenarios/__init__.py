"""Scenarios: how they are declared, found, and entered inside a rank."""
