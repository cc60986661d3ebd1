"""Supervision of jobs: processes that outlive hanglab and leave none of a job behind."""
