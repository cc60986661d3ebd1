"""Operators of mutation: one file each, found by its name; each offers OPERATOR or OPERATORS."""
