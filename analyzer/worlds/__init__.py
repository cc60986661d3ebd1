"""Which files of a folder belong together: one job, one attempt, moments that overlap."""
