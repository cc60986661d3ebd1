"""``hanglab watch``: finds jobs by itself, learns the pace of each, captures those that stop."""
