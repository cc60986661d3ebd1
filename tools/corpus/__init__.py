"""The corpus: hangs with known truth, and the verdict that the analyzer gives on each today."""
