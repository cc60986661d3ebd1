"""What each rank of a job did when, on one clock: for the page and for traces."""
