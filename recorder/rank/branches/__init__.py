"""The branches that the user's code takes, recorded on request: ``HANGLAB_BRANCHES=1``.

The user's files are compiled with a call on each way on from a statement or an expression that
decides.  Standard library only: this runs inside ranks.
"""
