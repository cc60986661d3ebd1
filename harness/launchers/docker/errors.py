"""Errors of Docker, one sentence each and what to do about it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from hanglab.harness.launchers.protocol import LaunchError
from hanglab.recorder.case.file_system_space import NO_SPACE, says_no_space


class NoDaemon(LaunchError):
    """Nobody answers where the Docker daemon should."""

    advice = "Start it (`systemctl start docker`), or name another one's socket in DOCKER_HOST."


class NotAllowed(LaunchError):
    """The daemon's socket refuses this user."""

    advice = "Run hanglab as root, or add the user to the group `docker` and log in again."


class NoImage(LaunchError):
    """The image that nodes are made of is not there."""

    advice = "`make image` builds it; HANGLAB_IMAGE names another one."


class UnfitImage(LaunchError):
    """The image holds no hanglab, or another one than this."""

    advice = "`make image` builds a fitting one; HANGLAB_IMAGE must name one built that way."


class ContainerNameTaken(LaunchError):
    """Containers or networks of the names that a job would give are there already."""

    advice = "`hanglab clean` removes what ended jobs have left; `docker ps -a` shows the rest."


class NoSpace(LaunchError):
    """Docker, or the folder of the job, is on a full disk."""

    advice = "`hanglab clean` and `docker system prune` make room; `docker system df` shows it."


class NoNetwork(LaunchError):
    """Docker has no addresses left for another network."""

    advice = "`hanglab clean` removes networks of ended jobs, `docker network prune` all unused."


class NodeNotReady(LaunchError):
    """A container was started and its ranks were not."""

    advice = "The log folder of the job has more; `docker info` shows whether the daemon is well."


class DaemonLost(LaunchError):
    """The daemon went away while a job ran."""

    advice = "Start it again; `hanglab clean`, or the next run, then removes what is left."


class NotHere(LaunchError):
    """The daemon runs on another machine, which does not see this one's files."""

    advice = "Unset DOCKER_HOST, or run hanglab on the daemon's machine."


class MissingSdk(LaunchError):
    """docker's Python package is not installed."""

    advice = "pip install 'hanglab[docker]'"


def address() -> str:
    """Address at which the daemon listens, as the SDK finds it."""
    return os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"


@contextmanager
def explained(doing: str) -> Iterator[None]:
    """Turns what the SDK raises into a :class:`LaunchError`; ``doing`` begins its sentence."""
    import docker.errors
    import requests.exceptions

    try:
        yield
    except docker.errors.APIError as error:
        raise _refusal(doing, error.status_code, str(error.explanation or error)) from error
    except (docker.errors.DockerException, requests.exceptions.RequestException, OSError) as error:
        raise _silence(doing, error) from error


def lost(error: LaunchError) -> LaunchError:
    """Explain an error while a job runs: a daemon that does not answer has answered before."""
    if not isinstance(error, NoDaemon):
        return error
    return DaemonLost(f"The Docker daemon went away while the job ran: {error}")


def not_started(sentence: str) -> LaunchError:
    """Error for a node that did not come up."""
    kind = NoSpace if says_no_space(sentence) else NodeNotReady
    return kind(sentence)


def unusable(doing: str, error: OSError) -> LaunchError:
    """Error for a folder of hanglab's own that cannot be written to."""
    kind = NoSpace if error.errno in NO_SPACE else LaunchError
    where = f": {error.filename}" if error.filename else ""
    return kind(f"{doing} failed: {error.strerror or error}{where}.")


def _refusal(doing: str, status: int | None, said: str) -> LaunchError:
    said = " ".join(said.split()).rstrip(".")
    words = said.lower()
    kind: type[LaunchError] = LaunchError
    if says_no_space(said):
        kind = NoSpace
    elif "no such image" in words:
        kind = NoImage
    elif "address pool" in words or "pool overlaps" in words:
        kind = NoNetwork
    elif (status == 409 and "name" in words) or "already exists" in words:
        kind = ContainerNameTaken
    elif "no such file or directory" in words and "exec" in words:
        kind = UnfitImage
    elif "permission denied" in words and "docker.sock" in words:
        kind = NotAllowed
    return kind(f"{doing} failed: {said}.")


def _silence(doing: str, error: Exception) -> LaunchError:
    if any(isinstance(one, PermissionError) for one in _chain(error)):
        return NotAllowed(f"This user may not talk to Docker at {address()}.")
    reason = next(
        (one.strerror for one in _chain(error) if isinstance(one, OSError) and one.strerror),
        " ".join(str(error).split()),
    )
    return NoDaemon(f"{doing} failed: no Docker daemon answers at {address()} ({reason}).")


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and what it was made from: causes, contexts and arguments."""
    front: list[BaseException] = [error]
    seen: set[int] = set()
    while front:
        one = front.pop(0)
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        inner = [one.__cause__, one.__context__, *one.args, getattr(one, "reason", None)]
        front += [each for each in inner if isinstance(each, BaseException)]
