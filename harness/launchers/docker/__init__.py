"""The launcher that gives every node of a job a container of its own."""
