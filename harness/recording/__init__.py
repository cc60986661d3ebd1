"""``hanglab record``: any command that starts ranks, watched and captured, otherwise untouched."""
