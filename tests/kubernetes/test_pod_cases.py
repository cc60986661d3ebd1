"""`hanglab capture --kubernetes` against a stand-in for an API server (see fake_cluster)."""

from __future__ import annotations

import io
import json
import os
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conditions import wait_for
from fake_cluster import FakeCluster, fake_cluster, write_kubeconfig
from kubernetes_support import HANGLAB

from hanglab.harness.cli import main
from hanglab.harness.kubernetes.job_pods import record_of
from hanglab.harness.recording import packed_capture
from hanglab.recorder.attach.tree import FoundRank
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case.reader import CaseReader

PROGRAM = Path(__file__).parent / "hanging_rank.py"
needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="pods are namespaces, made by root: run it as root"
)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    with fake_cluster(folder) as fake:
        monkeypatch.setenv("KUBECONFIG", str(fake.kubeconfig))
        yield fake


def start_job(cluster: FakeCluster, folder: Path) -> None:
    """Two pods whose commands are recorded, each by itself."""
    for rank in range(2):
        words = [sys.executable, str(PROGRAM), str(folder / "store")]
        out = str(folder / f"recorded-{rank}")
        record = ["--out", out, "--hang-after", "2", "--then", "leave", "--"]
        cluster.add(
            f"train-{rank}",
            [*HANGLAB, "record", *record, *words],
            environment={"RANK": str(rank), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"},
        )


@needs_root
def test_cases_of_pods_become_one_with_its_verdict(
    cluster: FakeCluster, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    start_job(cluster, tmp_path)
    cluster.add("train-gone", status={"phase": "Failed", "reason": "Evicted", "message": "Full."})
    wait_for(lambda: len(list(tmp_path.glob("recorded-?/manifest.json"))) == 2, "both captures")
    case = tmp_path / "case"
    words = ["capture", "--kubernetes", "train", "--watch", "1", "--out", str(case), "--json"]
    code = main(words)
    printed = capfd.readouterr()
    assert code == 0, printed.err
    verdict = json.loads(printed.out)
    assert verdict["culprits"] == [1] and verdict["status"] == "hung"
    assert "Pod train-gone was evicted from its node (Full.)" in printed.err
    reader = CaseReader(case)
    assert sorted(reader.hosts) == ["train-0", "train-1", "train-gone"]
    assert [(rank.rank, rank.host) for rank in reader.ranks] == [(0, "train-0"), (1, "train-1")]
    assert reader.hosts["train-gone"].read(files.POD).ending == "evicted"
    assert "was evicted" in next(a.reason for a in reader.manifest.absent if a.what == "pod")


@needs_root
def test_what_comes_stays_where_others_give_nothing(
    cluster: FakeCluster, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = [sys.executable, str(PROGRAM), str(tmp_path / "store")]
    environment = {"RANK": "0", "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    cluster.add("train-0", words, environment=environment)
    cluster.add("train-idle", ["sleep", "infinity"])
    cluster.add("train-bare", ["sleep", "infinity"], environment={"PATH": "/usr/bin:/bin"})
    cluster.archives = {"train-evil": _archive("case/../../evil"), "train-noise": b"noise"}
    cluster.add("train-evil"), cluster.add("train-noise")
    cluster.add("train-waits", status={"phase": "Pending"})
    case = tmp_path / "case"
    main(["capture", "--kubernetes", "train", "--watch", "0.5", "--out", str(case)])
    said = capfd.readouterr().err
    for sentence in (
        "Pod train-idle gave no Case: No rank of any job runs here",
        "Pod train-bare has no hanglab in its container trainer",
        "Pod train-evil sent what is no Case: 'case/../../evil' leads out of the Case",
        "Pod train-noise sent what is no Case",
        "Pod train-waits is not running: Pending",
    ):
        assert sentence in said
    assert not list(tmp_path.rglob("evil"))
    assert [rank.host for rank in CaseReader(case).ranks] == ["train-0"]


@pytest.mark.parametrize("group", ["kubepods-burstable-pod{}.slice", "kubepods/burstable/pod{}"])
def test_agent_of_a_node_keeps_to_one_pod(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: str
) -> None:
    uid = "8f0b6f6e-5a2c-4b7c-9d1e-000000000001"
    other = uid.replace("8f0b", "1234")
    for pid, pod in ((101, uid), (102, other)):
        name = pod.replace("-", "_") if "slice" in group else pod
        (tmp_path / f"_proc_{pid}_cgroup").write_text(f"0::/../{group.format(name)}/cri-a.scope\n")
    monkeypatch.setattr(packed_capture, "Path", lambda name: tmp_path / name.replace("/", "_"))
    jobs = [[FoundRank(pid, 0, 1, 0, 0, "", "")] for pid in (101, 102, 103)]
    assert packed_capture.of_pod(jobs, uid) == [jobs[0]]


def _archive(name: str) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        archive.addfile(tarfile.TarInfo(name), io.BytesIO())
    return packed.getvalue()


def test_who_may_not_list_or_run_anything(
    cluster: FakeCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.add("train-0")
    capture = ["capture", "--kubernetes", "train", "--out", str(tmp_path / "case")]
    cluster.exec_status = 403
    assert main(capture) == 4
    said = capsys.readouterr().err
    assert "Pod train-0 gave no Case: Running a command in pod train-0 is refused: you may" in said
    assert "None of the 1 pods of train gave a Case" in said
    cluster.list_status = 403
    assert main([*capture[:-1], str(tmp_path / "other")]) == 4
    said = capsys.readouterr().err
    assert "Listing the pods of train in namespace ml is refused: you may not" in said
    assert "create` of pods/exec" in said


def test_no_cluster_no_credentials_no_such_job(
    cluster: FakeCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def said(*more: str) -> str:
        words = ["capture", "--kubernetes", "train", "--out", str(tmp_path / "case"), *more]
        assert main(words) not in (0, 2)
        return capsys.readouterr().err

    assert "No pod of a job train is in namespace other" in said("--namespace", "other")
    assert "Looking for a cluster failed" in said("--context", "nowhere")
    config = tmp_path / "config"
    certificate = cluster.kubeconfig.with_name("certificate.pem")
    monkeypatch.setenv("KUBECONFIG", str(config))
    write_kubeconfig(config, cluster.url, certificate, token="wrong")
    assert "takes these credentials for none" in said()
    write_kubeconfig(config, "https://127.0.0.1:1", certificate)
    assert "found no cluster that answers" in said()
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    assert "Looking for a cluster failed" in said()


@pytest.mark.parametrize(
    ("status", "ending"),
    [
        ({"phase": "Running"}, None),
        ({"phase": "Failed", "reason": "Evicted"}, "evicted"),
        ({"phase": "Failed", "reason": "DeadlineExceeded"}, "deadline"),
        ({"phase": "Failed", "reason": "NodeLost"}, "node_lost"),
        ({"phase": "Failed"}, "failed"),
        ({"phase": "Succeeded"}, "succeeded"),
        ({"phase": "Running", "conditions": [("DisruptionTarget", "PreemptionByScheduler")]},
         "preempted"),
        ({"phase": "Unknown", "conditions": [("DisruptionTarget", "DeletionByTaintManager")]},
         "node_lost"),
        ({"phase": "Failed", "ended": ("OOMKilled", 137)}, "oom_killed"),
        ({"phase": "Running", "before": ("OOMKilled", 137)}, "oom_killed"),
        ({"phase": "Failed", "ended": ("Error", 1)}, "failed"),
    ],
)  # fmt: skip
def test_ends_of_pods(status: dict[str, Any], ending: str | None) -> None:
    def state(name: str) -> Any:
        if name not in status:
            return None
        reason, code = status[name]
        return SimpleNamespace(terminated=SimpleNamespace(reason=reason, exit_code=code))

    pod = SimpleNamespace(
        metadata=SimpleNamespace(name="a", namespace="b"),
        spec=SimpleNamespace(node_name="c"),
        status=SimpleNamespace(
            phase=status["phase"],
            reason=status.get("reason"),
            message=None,
            conditions=[
                SimpleNamespace(type=kind, status="True", reason=reason)
                for kind, reason in status.get("conditions", ())
            ],
            container_statuses=[
                SimpleNamespace(state=state("ended"), last_state=state("before"), restart_count=0)
            ],
        ),
    )
    assert record_of(pod).ending == ending
