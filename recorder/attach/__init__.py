"""Finding ranks from outside: those that no hook announced, in the tree of processes."""
