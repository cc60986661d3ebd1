"""What surrounds the ranks of this host: read once a second and at the capture, never raising."""
