"""On-demand profiling: asking Kineto in a running PyTorch process for a trace.

The agent speaks the IPC fabric of PyTorch's profiler and the TCP requests of
Dynolog, whose layouts it shares byte for byte (github.com/facebookincubator/dynolog
and github.com/pytorch/kineto).
"""
