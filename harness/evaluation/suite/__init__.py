"""Suites: plain torch scripts that somebody else has labelled, run, judged and measured."""
