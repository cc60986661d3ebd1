"""Results as people see them: progress, verdicts, tables and pictures."""
