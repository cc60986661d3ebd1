"""Parts of the harness that run inside a rank: the scenario's body, its job, its device."""
