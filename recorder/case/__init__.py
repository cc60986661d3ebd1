"""The Case: the directory in which a recorder leaves all that it captured of one job."""
