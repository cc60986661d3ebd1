"""Verdicts for other programs: SARIF, Prometheus' text format, a page of GitHub."""
