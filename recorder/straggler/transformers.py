"""A callback for the Trainer of Hugging Face transformers."""

from __future__ import annotations

from typing import Any

try:
    from transformers import (
        TrainerCallback,
        TrainerControl,
        TrainerState,
        TrainingArguments,
    )
except ImportError as error:
    raise ImportError(
        "The straggler callback for Hugging Face needs transformers: "
        "pip install transformers accelerate"
    ) from error

from hanglab.recorder.straggler.callables import CallableId
from hanglab.recorder.straggler.detector import Detector
from hanglab.recorder.straggler.integration import StragglerWatch, Thresholds
from hanglab.recorder.straggler.scoring import INDIVIDUAL, RELATIVE


class StragglerDetectionCallback(TrainerCallback):
    """Times the forward pass of the model, and names slow ranks.

    Args:
        report_time_interval: Seconds between reports.
        thresholds: Scores below these are slow.
        scores_to_compute: Relative to the fastest rank, to the rank's own past, or both.
        stop_if_detected: End the training, on all ranks after the same step.
        profiling_interval: Time every so-many-th entry of a section.
        num_scores_to_log: So many of the best and worst scores are logged, as
            logger ``hanglab.straggler``.
    """

    def __init__(
        self,
        report_time_interval: float = 60.0,
        thresholds: Thresholds | None = None,
        stop_if_detected: bool = False,
        profiling_interval: int = 1,
        num_scores_to_log: int = 5,
        scores_to_compute: tuple[str, ...] = (RELATIVE, INDIVIDUAL),
    ) -> None:
        #: Holds the latest report, and who was slow in it, on rank 0.
        self.watch = StragglerWatch(
            report_time_interval=report_time_interval,
            scores_to_compute=scores_to_compute,
            thresholds=thresholds,
            stop_if_detected=stop_if_detected,
            profiling_interval=profiling_interval,
            scores_to_log=num_scores_to_log,
        )

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: Any = None,
        **kwargs: Any,
    ) -> None:
        self.watch.start()
        # The Trainer may have put a wrapper around the model that communicates.
        model = getattr(model, "module", model)
        if model is not None:
            Detector.wrap_callables([CallableId(model, "forward")])

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        if self.watch.step():
            control.should_training_stop = True

    def on_train_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        self.watch.stop()
