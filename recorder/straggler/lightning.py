"""A callback for Lightning's Trainer, with the interface of NVIDIA's."""

from __future__ import annotations

import logging
from typing import Any

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ImportError as error:
    raise ImportError(
        "The straggler callback for Lightning needs lightning: pip install lightning"
    ) from error

from hanglab.recorder.slowness.thresholds import SCORE_THRESHOLD
from hanglab.recorder.straggler.callables import CallableId
from hanglab.recorder.straggler.detector import Detector
from hanglab.recorder.straggler.integration import (
    StragglerWatch,
    Thresholds,
    scores_asked,
    summarised,
)


class StragglerDetectionCallback(Callback):
    """Times the module's ``training_step`` and its backward pass, and names slow ranks.

    Args:
        report_time_interval: Seconds between reports.
        calc_relative_gpu_perf: Compute scores relative to the fastest rank.
        calc_individual_gpu_perf: Compute scores relative to each rank's own past.
        num_gpu_perf_scores_to_log: So many of the best and worst scores are logged.
        gpu_relative_perf_threshold, gpu_individual_perf_threshold: Scores below are slow.
        stop_if_detected: End the training, on all ranks after the same batch.
        enable_ptl_logging: Give scores to the Trainer's loggers.
        profiling_interval: Time every so-many-th entry of a section.
        logger_name: Name of the logger that reports are told to.
        num_gpu_perf_scores_to_print: The older name of ``num_gpu_perf_scores_to_log``.
        section_relative_perf_threshold, section_individual_perf_threshold: The same of
            the sections, which are timed on CPU and GPU alike.
    """

    def __init__(
        self,
        report_time_interval: float = 60.0,
        calc_relative_gpu_perf: bool = True,
        calc_individual_gpu_perf: bool = True,
        num_gpu_perf_scores_to_log: int = 5,
        gpu_relative_perf_threshold: float = SCORE_THRESHOLD,
        gpu_individual_perf_threshold: float = SCORE_THRESHOLD,
        stop_if_detected: bool = False,
        enable_ptl_logging: bool = True,
        profiling_interval: int = 1,
        logger_name: str | None = "hanglab.straggler",
        *,
        num_gpu_perf_scores_to_print: int | None = None,
        section_relative_perf_threshold: float = SCORE_THRESHOLD,
        section_individual_perf_threshold: float = SCORE_THRESHOLD,
    ) -> None:
        if num_gpu_perf_scores_to_print is not None:
            num_gpu_perf_scores_to_log = num_gpu_perf_scores_to_print
        self._enable_ptl_logging = enable_ptl_logging
        #: Holds the latest report, and who was slow in it, on rank 0.
        self.watch = StragglerWatch(
            report_time_interval=report_time_interval,
            scores_to_compute=scores_asked(calc_relative_gpu_perf, calc_individual_gpu_perf),
            thresholds=Thresholds(
                gpu_relative=gpu_relative_perf_threshold,
                gpu_individual=gpu_individual_perf_threshold,
                section_relative=section_relative_perf_threshold,
                section_individual=section_individual_perf_threshold,
            ),
            stop_if_detected=stop_if_detected,
            profiling_interval=profiling_interval,
            scores_to_log=num_gpu_perf_scores_to_log,
            logger=logging.getLogger(logger_name),
        )

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.watch.start()
        Detector.wrap_callables(
            [CallableId(pl_module, "training_step"), CallableId(trainer.strategy, "backward")]
        )

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        before = self.watch.report
        if self.watch.step():
            trainer.should_stop = True
        report = self.watch.report
        if self._enable_ptl_logging and report is not None and report is not before:
            for logger in trainer.loggers:
                logger.log_metrics(summarised(report), step=trainer.global_step)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.watch.stop()

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        self.watch.stop()
