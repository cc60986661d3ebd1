"""Groups the files of a folder that belong together: one job, one attempt, moments that overlap."""
