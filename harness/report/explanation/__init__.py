"""A verdict in words and parts, for terminal and page alike; both only arrange what is here."""
