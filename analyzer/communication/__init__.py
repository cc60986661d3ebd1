"""Who communicates with whom, and who waits for whom: dumps matched across ranks."""
