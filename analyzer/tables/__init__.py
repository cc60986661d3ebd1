"""Entries of all ranks as one table: side by side for people, flat for queries."""

from hanglab.analyzer.tables.database import write_database
from hanglab.analyzer.tables.entries import EntriesTable, entries_table
from hanglab.analyzer.tables.selection import parse_numbers, parse_range
from hanglab.analyzer.tables.sources import load_dumps

__all__ = [
    "EntriesTable",
    "entries_table",
    "load_dumps",
    "parse_numbers",
    "parse_range",
    "write_database",
]
