"""A job as a trace that Perfetto shows and that its trace processor answers SQL over."""
