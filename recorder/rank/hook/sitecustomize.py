"""Starts the recorder in ranks, and runs the sitecustomize that this one hides.

Python imports the first module of this name that it finds, at the start of
every process; this folder stands first on PYTHONPATH.
"""

import os
import sys


def _run_hidden() -> None:
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    here = os.path.realpath(os.path.dirname(__file__))
    paths = [p for p in sys.path if os.path.realpath(p or os.curdir) != here]
    spec = PathFinder.find_spec("sitecustomize", paths)
    if spec is None or spec.loader is None:
        return
    ours = sys.modules.get("sitecustomize")
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        # As Python itself: the caller prints it, the process goes on.
        if ours is not None:
            sys.modules["sitecustomize"] = ours
        raise


def _start() -> None:
    if not os.environ.get("HANGLAB_CASE"):
        return
    try:
        from hanglab.recorder.rank import start_from_environment

        start_from_environment()
    except Exception:  # the job matters more than its recording
        return


_start()
_run_hidden()
