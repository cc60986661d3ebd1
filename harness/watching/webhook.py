"""A webhook: events of a watch sent to a URL, in order, by a thread of their own."""

from __future__ import annotations

import http.client
import ipaddress
import queue
import ssl
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from hanglab.harness.errors import UsageError
from hanglab.harness.watching.events import WatchEvent

#: Seconds for an answer, and between tries.
_ANSWER_S = 10.0
_TRIES_S = (1.0, 5.0, 20.0, 60.0, 120.0)
#: Events that wait; where nobody takes them for long, the oldest go.
_WAITING = 500
_LONGEST = 1 << 16


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows nobody elsewhere: the secret is for the URL that was named."""

    def redirect_request(self, *arguments: Any, **more: Any) -> None:
        return None


class Webhook:
    """Sender of events to one URL.  Raises UsageError where that is unsafe or none."""

    def __init__(
        self,
        url: str,
        secret: str | None = None,
        authority: Path | None = None,
        say: Callable[[str], None] = lambda _: None,
        tries_s: tuple[float, ...] = _TRIES_S,
    ) -> None:
        """``secret`` is sent as a bearer's token; ``authority`` (PEM) is trusted besides."""
        self._url = _checked(url)
        self._place = urllib.parse.urlsplit(self._url).netloc.rpartition("@")[2]
        self._secret = secret
        self._say = say
        self._tries_s = tries_s
        try:
            context = ssl.create_default_context()
            if authority is not None:
                context.load_verify_locations(authority)
        except OSError as error:
            raise UsageError(f"{authority} cannot be used: {error}.", "It must be PEM.") from None
        self._opener = urllib.request.build_opener(
            _NoRedirect, urllib.request.HTTPSHandler(context=context)
        )
        self._over = threading.Event()
        self._events: queue.Queue[WatchEvent] = queue.Queue(_WAITING)
        #: Events that got there, and that were given up.
        self.sent = 0
        self.lost = 0
        self._thread = threading.Thread(target=self._run, name="hanglab-webhook", daemon=True)
        self._thread.start()

    def send(self, event: WatchEvent) -> None:
        """Have it sent; never waits."""
        while True:
            try:
                self._events.put_nowait(event)
                return
            except queue.Full:
                try:
                    self._events.get_nowait()
                    self.lost += 1
                except queue.Empty:
                    continue

    def close(self, wait_s: float = 2 * _ANSWER_S) -> None:
        """Try what waits once more, for so long at most."""
        self._over.set()
        self._thread.join(wait_s)

    def _run(self) -> None:
        while not (self._over.is_set() and self._events.empty()):
            try:
                event = self._events.get(timeout=0.2)
            except queue.Empty:
                continue
            problem = self._send(event)
            if problem:
                self.lost += 1
                self._say(f"{self._place} did not take an event: {problem}")
            else:
                self.sent += 1

    def _send(self, event: WatchEvent) -> str:
        """A sentence with what is wrong, "" where it has arrived."""
        # Chats show `text`.
        body = msgspec.json.encode({**event.as_json(), "text": f"hanglab: {event.summary}"})
        request = urllib.request.Request(self._url, body, {"Content-Type": "application/json"})
        if self._secret is not None:
            request.add_header("Authorization", f"Bearer {self._secret}")
        problem = ""
        for pause_s in (*self._tries_s, None):
            try:
                with self._opener.open(request, timeout=_ANSWER_S) as answer:
                    answer.read(_LONGEST)
                return ""
            except urllib.error.HTTPError as error:
                problem = f"it answered {error.code}"
                error.close()
                if error.code < 500 and error.code not in (408, 425, 429):
                    return problem
            except (OSError, http.client.HTTPException) as error:
                problem = str(getattr(error, "reason", None) or error) or type(error).__name__
                if isinstance(getattr(error, "reason", None), ssl.SSLCertVerificationError):
                    return problem
            if pause_s is None or self._over.wait(pause_s):
                break
        return problem


def _checked(url: str) -> str:
    parts = urllib.parse.urlsplit(url)
    if parts.scheme == "https" and parts.hostname:
        return url
    if parts.scheme == "http" and parts.hostname:
        if _is_loopback(parts.hostname):
            return url
        raise UsageError(
            "The webhook's URL has no TLS, and events tell of jobs and hosts.",
            "Give an https:// URL; http:// is for this host alone.",
        )
    raise UsageError("The webhook is no URL.", "Give one such as https://example.org/hook.")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
