"""The timeline of a job, all ranks on one clock: for the page and for traces."""
