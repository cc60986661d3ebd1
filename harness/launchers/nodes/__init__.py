"""Jobs over several nodes: what all launchers share that start a process of their own on each."""
