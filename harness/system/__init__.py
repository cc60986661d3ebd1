"""Parts of the machine that scenarios need: capabilities, control groups, mounts."""
