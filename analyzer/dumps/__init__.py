"""Flight Recorder dumps: from files of strangers to columns."""
