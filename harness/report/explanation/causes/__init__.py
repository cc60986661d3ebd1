"""What people are told of each cause, a file for each category."""
