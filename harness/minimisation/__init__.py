"""Cuts a recorded hang down to a script that hangs for the same reason, confirmed by real runs."""
