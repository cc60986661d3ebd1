"""History of a watch: events in SQLite, which several watches may write and ask at once."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from hanglab.harness.errors import HanglabError
from hanglab.harness.watching.events import WatchEvent
from hanglab.recorder.case import folders

#: Version of the tables; ``PRAGMA user_version`` has it.
_VERSION = 1
_TABLES = """
CREATE TABLE IF NOT EXISTS events (
    id INTEGER PRIMARY KEY, at REAL NOT NULL, host TEXT NOT NULL, kind TEXT NOT NULL,
    job TEXT NOT NULL, same_job TEXT NOT NULL, attempt INTEGER NOT NULL, status TEXT, cause TEXT,
    signature TEXT NOT NULL, culprits TEXT NOT NULL, case_folder TEXT, url TEXT,
    summary TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS culprits (
    event INTEGER NOT NULL REFERENCES events(id) ON DELETE CASCADE,
    host TEXT NOT NULL, rank INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS events_by_time ON events(at);
CREATE INDEX IF NOT EXISTS culprits_by_event ON culprits(event);
"""
#: Seconds for which another watch's writing is waited for.
_BUSY_S = 10.0
_DAY_S = 86400.0
#: Days after which events are forgotten.
_KEPT_DAYS = 400


class HistoryError(HanglabError):
    """The history cannot be read or written."""

    advice = "Name another place with --state; what is watched is told all the same."


class CulpritHost(NamedTuple):
    """A host on which ranks were the cause: how often, of which causes, and when last."""

    host: str
    times: int
    jobs: int
    causes: str
    last: float


class WatchHistory:
    """One file of events.  Raises HistoryError."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._told():
            folders.make_private(path.parent)
            with self._open() as database:
                version = int(database.execute("PRAGMA user_version").fetchone()[0])
                if version > _VERSION:
                    raise HistoryError(
                        f"{path} was written by a newer hanglab (version {version} of its tables, "
                        f"and this one knows {_VERSION}).",
                        "Install that version, or name another place with --state.",
                    )
                # Readers do not wait for whoever writes, nor the other way round.
                database.execute("PRAGMA journal_mode = WAL")
                database.executescript(_TABLES)
                database.execute(f"PRAGMA user_version = {_VERSION}")
                database.execute(
                    "DELETE FROM events WHERE at < ?", (time.time() - _KEPT_DAYS * _DAY_S,)
                )
            path.chmod(0o600)

    def add(self, event: WatchEvent) -> None:
        with self._told(), self._open() as database:
            row = database.execute(
                "INSERT INTO events (at, host, kind, job, same_job, attempt, status, cause, "
                "signature, culprits, case_folder, url, summary) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    event.at, event.host, event.kind, event.job, event.same_job or event.job,
                    event.attempt, event.status, event.cause, event.signature,
                    msgspec.json.encode(event.culprits).decode(), event.case, event.url,
                    event.summary,
                ),
            )  # fmt: skip
            database.executemany(
                "INSERT INTO culprits VALUES (?, ?, ?)",
                [(row.lastrowid, event.host, rank) for rank in event.culprits_here],
            )

    def recurrences(self, event: WatchEvent, since: float) -> int:
        """Attempts of the same job that have met the same failure on the same host since."""
        with self._told(), self._open() as database:
            return int(
                database.execute(
                    "SELECT COUNT(*) FROM events WHERE same_job = ? AND host = ? AND "
                    "signature = ? AND kind IN ('failed', 'stopped') AND at >= ?",
                    (event.same_job or event.job, event.host, event.signature, since),
                ).fetchone()[0]
            )

    def culprit_hosts(self, days: float) -> list[CulpritHost]:
        """Hosts by how often ranks on them were the cause, the most often first."""
        with self._told(), self._open() as database:
            rows = database.execute(
                "SELECT c.host, COUNT(DISTINCT e.id), COUNT(DISTINCT e.same_job), "
                "GROUP_CONCAT(DISTINCT COALESCE(e.cause, e.signature)), MAX(e.at) "
                "FROM culprits c JOIN events e ON e.id = c.event WHERE e.at >= ? "
                "GROUP BY c.host ORDER BY 2 DESC, 5 DESC",
                (time.time() - days * _DAY_S,),
            ).fetchall()
        return [CulpritHost(*row) for row in rows]

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        database = sqlite3.connect(self._path, timeout=_BUSY_S)
        try:
            database.execute("PRAGMA foreign_keys = ON")
            with database:
                yield database
        finally:
            database.close()

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            if isinstance(error, HanglabError):
                raise
            raise HistoryError(f"The history {self._path} cannot be used: {error}.") from error
