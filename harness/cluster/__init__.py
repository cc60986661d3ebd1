"""Dumps read and summarised on other machines, by Dask; the verdict is made here."""
