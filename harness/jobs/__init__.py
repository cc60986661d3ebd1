"""Jobs: what is planned, run, judged, and laid down of each."""
