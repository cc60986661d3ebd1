"""A running job as its recorder sees it, on a terminal or as lines."""
