"""The analyzer reads a Case, or a folder of dumps, and names a cause."""
