"""The part of the recorder that runs once per host: watches the ranks from outside and captures.

``python -m hanglab.recorder.agent --case DIR --runtime DIR`` speaks JSON lines;
see :mod:`hanglab.recorder.agent.driver_channel`.
"""
