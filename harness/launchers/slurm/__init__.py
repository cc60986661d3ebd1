"""Jobs whose ranks are tasks of Slurm, with an agent of hanglab's beside them on every node."""
