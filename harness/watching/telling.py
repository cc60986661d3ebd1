"""Telling of events: the history, the log, a webhook, a store, a collector, counters."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hanglab.harness.errors import HanglabError
from hanglab.harness.watching.events import WatchEvent
from hanglab.harness.watching.followups import Followups
from hanglab.harness.watching.history import WatchHistory
from hanglab.harness.watching.metrics import Sample, metrics_text
from hanglab.harness.watching.webhook import Webhook

#: The same first failure so many times within a day is a storm; told again at twice as many.
_STORM = 3
_STORM_S = 86400.0


@dataclass
class Teller:
    """All who are told.  ``url``: a folder in a store, to which Cases are sent."""

    say: Callable[[str], None]
    history: WatchHistory | None = None
    webhook: Webhook | None = None
    followups: Followups | None = None
    url: str | None = None
    opentelemetry: bool = False

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._events: Counter[tuple[str, str]] = Counter()

    def tell(self, event: WatchEvent) -> None:
        """Tell everybody; whoever cannot be told costs the others nothing."""
        if event.case is not None and self.url is not None and self.followups is not None:
            case = Path(event.case)
            url = f"{self.url.rstrip('/')}/{case.parent.name}/{case.name}"
            event = replace(event, url=url)
            self.followups.add("upload", str(case), url)
        if event.case is not None and self.opentelemetry and self.followups is not None:
            # 2: it is sent, and is of a job of which nothing could be decided.
            self.followups.add("analyze", event.case, "--opentelemetry", "--json", good=(0, 2))
        self._pass_on(event)
        storm = self._storm_of(event)
        if storm is not None:
            self._pass_on(storm)

    def _pass_on(self, event: WatchEvent) -> None:
        self.say(event.summary + (f" The Case is {event.case}" if event.case else ""))
        with self._lock:
            self._events[event.kind, event.cause or ""] += 1
        if self.history is not None:
            try:
                self.history.add(event)
            except HanglabError as error:
                self.say(f"{error} {error.advice}")
        if self.webhook is not None:
            self.webhook.send(event)

    def _storm_of(self, event: WatchEvent) -> WatchEvent | None:
        """A storm, where the event is the third or sixth or twelfth of its kind in a day."""
        if self.history is None or event.kind not in ("failed", "stopped"):
            return None
        try:
            times = self.history.recurrences(event, event.at - _STORM_S)
        except HanglabError:
            return None
        if times < _STORM or times % _STORM or (times // _STORM) & (times // _STORM - 1):
            return None
        words = (
            f"{event.job} has failed {times} times in a day on {event.host} in the same way: "
            f"{event.signature}. To start it there again will most likely end so again."
        )
        # Its culprits were counted with the failures that it sums up.
        return replace(event, kind="storm", summary=words, case=None, url=None, culprits_here=[])

    @property
    def unsent(self) -> int:
        """Uploads and reports still to be made."""
        return self.followups.pending if self.followups is not None else 0

    def metrics(self, jobs: Sequence[dict[str, Any]], suspicions: int) -> str:
        """Text for Prometheus."""
        with self._lock:
            events: list[Sample] = [
                ({"event": kind, "cause": cause}, count)
                for (kind, cause), count in sorted(self._events.items())
            ]
        hook = self.webhook

        def by_job(key: str) -> list[Sample]:
            return [({"job": str(job["job"])}, float(job[key])) for job in jobs]

        return metrics_text(
            {
                "jobs": ("gauge", "Jobs that have ranks on this host.", [({}, len(jobs))]),
                "ranks": ("gauge", "Ranks on this host, by job.", by_job("ranks")),
                "stopped": ("gauge", "1 for a job that does not move.", by_job("stopped")),
                "pause_seconds": ("gauge", "Present pause of a job.", by_job("pause_s")),
                "pause_limit_seconds": (
                    "gauge", "Pause from which on a job counts as stopped.", by_job("limit_s"),
                ),
                "events_total": ("counter", "Events told, by kind and cause.", events),
                "suspicions_total": (
                    "counter", "Pauses that a capture showed to be none of a hang.",
                    [({}, suspicions)],
                ),
                "webhook_sent_total": (
                    "counter", "Events that the webhook took.", [({}, hook.sent if hook else 0)],
                ),
                "webhook_lost_total": (
                    "counter", "Events that were given up.", [({}, hook.lost if hook else 0)],
                ),
                "followups_pending": (
                    "gauge", "Uploads and reports still to be made.",
                    [({}, self.unsent)],
                ),
            }
        )  # fmt: skip

    def close(self) -> None:
        if self.webhook is not None:
            self.webhook.close()
        if self.followups is not None:
            self.followups.close()
