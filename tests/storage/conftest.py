"""A Case, and a store of its own for each test."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from s3_server import S3Server, s3_server

CORPUS = Path(__file__).parents[1] / "corpus" / "local"


@pytest.fixture
def case(tmp_path: Path) -> Path:
    """The Case of a job of four ranks that hung."""
    folder = tmp_path / "recorded"
    with tarfile.open(CORPUS / "busy_loop.fault.tar.xz") as archive:
        archive.extractall(folder)  # made by this project
    return next(path.parent for path in folder.rglob("job.json"))


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """A store with the bucket ``hangs``, which this process and its children find."""
    import boto3
    import fsspec
    from moto.moto_api._internal import moto_api_backend

    with s3_server() as server:
        for name, value in {
            "AWS_ENDPOINT_URL": server.url,
            "AWS_ACCESS_KEY_ID": "somebody",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }.items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("AWS_PROFILE", raising=False)
        moto_api_backend.reset()
        boto3.client("s3").create_bucket(Bucket="hangs")
        server.faults.seen.clear()
        # Instances keep the endpoint that they were made with.
        for protocol in ("s3", "s3a"):
            fsspec.get_filesystem_class(protocol).clear_instance_cache()
        yield server
