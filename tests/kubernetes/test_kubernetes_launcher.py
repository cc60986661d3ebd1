"""Jobs of hanglab in pods of a stand-in for a cluster (see fake_cluster): their Case, their end."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conditions import PATIENCE_S, wait_for
from fake_cluster import FakeCluster, FakePod, fake_cluster
from installed import needs_torch
from kubernetes_support import HANGLAB, check

from hanglab.analyzer.engine import analyze
from hanglab.harness.capabilities import capability
from hanglab.harness.launchers.kubernetes import pods
from hanglab.harness.launchers.kubernetes.errors import PodsNotStarted
from hanglab.harness.launchers.kubernetes.files import EvidenceFiles
from hanglab.harness.launchers.kubernetes.launcher import KubernetesLauncher
from hanglab.harness.launchers.protocol import JobPlan, LaunchError
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case.reader import CaseReader
from hanglab.recorder.system import procfs

pytestmark = [
    needs_torch,
    pytest.mark.skipif(
        os.geteuid() != 0, reason="pods are namespaces, made by root: run it as root"
    ),
]

TELLS = """\
import json, os, socket
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "HANGLAB_FAULT")
print(json.dumps({**{name: os.environ.get(name) for name in names}, "pod": socket.gethostname()}))
raise SystemExit(int(os.environ["RANK"]))
"""
LOOPS = """\
import time, torch, torch.distributed as dist
dist.init_process_group("gloo")
while True:
    dist.all_reduce(torch.ones(1))
    print("went on", flush=True)
    time.sleep(0.02)
"""


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    with fake_cluster(folder) as fake:
        monkeypatch.setenv("KUBECONFIG", str(fake.kubeconfig))
        yield fake


@pytest.fixture
def launcher(cluster: FakeCluster) -> Iterator[KubernetesLauncher]:
    made = KubernetesLauncher()
    yield made
    made.close()
    assert not cluster.pods


def make_plan(folder: Path, program: str, **changes: Any) -> JobPlan:
    run_dir = folder / "run"
    run_dir.mkdir()
    (folder / "program").mkdir()
    script = folder / "program" / "train.py"
    script.write_text(program)
    values: dict[str, Any] = {
        "run_dir": run_dir, "case_dir": run_dir / "case", "script": script, "function": None,
        "world_size": 3, "faulty": True, "seed": 0, "backend": "gloo", "deadline_s": PATIENCE_S,
        "nodes": 2,
    }  # fmt: skip
    return JobPlan(**{**values, **changes})


@pytest.mark.slow
def test_ranks_are_placed_on_pods_and_what_they_wrote_comes_back(
    launcher: KubernetesLauncher, tmp_path: Path
) -> None:
    plan = make_plan(tmp_path, "from beside import *\n" + TELLS)
    (plan.script.parent / "beside.py").write_text("print('it is there', flush=True)\n")
    job = launcher.start(plan)
    exits = []
    wait_for(lambda: exits.extend(job.events(0.1)) or len(exits) == 3, "all ranks' ends")
    assert {(gone.rank, gone.code) for gone in exits} == {(0, 0), (1, 1), (2, 2)}
    job.end()
    lines = [(plan.log_dir / f"rank{rank}.out").read_text().splitlines() for rank in range(3)]
    assert [one[0] for one in lines] == ["it is there"] * 3
    told = [json.loads(one[1]) for one in lines]
    assert [one["pod"][-2:] for one in told] == ["-0", "-0", "-1"]
    assert [one["LOCAL_RANK"] for one in told] == ["0", "1", "0"]
    assert {one["MASTER_ADDR"] for one in told} == {"127.0.0.1"}


def run_cli(folder: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*HANGLAB, "run", "--launcher", "kubernetes", *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def ranks_in(pod: FakePod) -> list[int]:
    """Ranks in a pod, as this machine numbers them."""
    if pod.init is None:
        return []
    space = procfs.process_namespace(str(pod.init))
    return [
        pid
        for pid in procfs.everyone()
        if "RANK" in procfs.environment(pid) and procfs.process_namespace(str(pid)) == space
    ]


@pytest.mark.slow
def test_a_frozen_rank_is_named_from_the_evidence_of_both_pods(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    ran = run_cli(tmp_path, "process_frozen", "--nodes", "2", "--no-control", "--world-size", "3")
    said, _ = ran.communicate(timeout=PATIENCE_S)
    assert ran.returncode == 0, said
    (folder,) = tmp_path.glob("runs/2*/process_frozen/fault/0")
    case = CaseReader(folder / "case")
    assert sorted(name[-2:] for name in case.hosts) == ["-0", "-1"]
    endings = {host.read(files.POD).ending for host in case.hosts.values()}
    assert endings <= {None, "succeeded"}
    (strike,) = json.loads((folder / "truth.json").read_text())["faults"]
    assert strike["struck_ns"] is not None and strike["pid"] is not None
    assert not cluster.pods


@pytest.mark.slow
def test_pods_of_a_hanglab_that_was_killed_end_and_are_cleaned_away(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(LOOPS)
    ran = run_cli(tmp_path, str(script), "--nodes", "2", "--world-size", "2")
    wait_for(lambda: len(cluster.pods) == 2, "the pods to be made")
    ranks = [wait_for(lambda pod=pod: ranks_in(pod), "the rank") for pod in cluster.pods.values()]
    ran.send_signal(signal.SIGKILL)
    ran.communicate()
    for pod in cluster.pods.values():
        wait_for(lambda pod=pod: pod.told["status"]["phase"] == "Succeeded", "the pod to end")
    assert not [pid for found in ranks for pid in found if procfs.state(pid) not in ("", "Z")]
    assert len(cluster.pods) == 2
    cleaned = subprocess.run(
        [*HANGLAB, "clean"], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert cleaned.returncode == 0, cleaned.stderr
    assert cleaned.stdout.count("removed pod hanglab-") == 2
    assert not cluster.pods


@pytest.mark.slow
def test_a_pod_that_is_lost_takes_its_ranks_and_blames_none(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(LOOPS.replace('print("went on", flush=True)', "open('/tmp/went_on', 'a')"))
    ran = run_cli(tmp_path, str(script), "--nodes", "2", "--world-size", "2")
    wait_for(lambda: len(cluster.pods) == 2, "the pods to be made")
    first, second = cluster.pods.values()
    wait_for(lambda: Path(f"/proc/{second.init}/root/tmp/went_on").exists(), "its rank to go on")
    second.body["status"] = {"phase": "Failed", "reason": "Evicted", "message": "Full."}
    second.own_root = False
    assert second.process is not None
    os.killpg(second.process.pid, signal.SIGKILL)
    said, _ = ran.communicate(timeout=PATIENCE_S)
    (case,) = {path.resolve().parent for path in tmp_path.rglob("job.json")}
    verdict = analyze(case)
    assert verdict.cause is not None and verdict.cause.value == "host_lost", said
    assert first.body["metadata"]["name"] not in verdict.summary


def test_an_image_that_cannot_be_had_is_a_sentence_and_leaves_nothing(
    cluster: FakeCluster, launcher: KubernetesLauncher, tmp_path: Path
) -> None:
    waiting = {"reason": "ErrImagePull", "message": "not found."}
    status = {"name": "node", "state": {"waiting": waiting}, "ready": False}
    container = {**status, "restartCount": 0, "image": "a", "imageID": "a"}
    cluster.made_status = {"phase": "Pending", "containerStatuses": [container]}
    with pytest.raises(PodsNotStarted, match="does not start: ErrImagePull, not found") as raised:
        launcher.start(make_plan(tmp_path, TELLS))
    assert "HANGLAB_IMAGE" in raised.value.advice
    assert not cluster.pods


def test_pods_for_which_there_is_no_place_are_given_up(
    cluster: FakeCluster,
    launcher: KubernetesLauncher,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(pods.WAIT, "1")
    why = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available."}
    cluster.made_status = {"phase": "Pending", "conditions": [why]}
    with pytest.raises(PodsNotStarted, match="within 1 s: 0/3 nodes are available"):
        launcher.start(make_plan(tmp_path, TELLS))
    assert not cluster.pods


def test_rights_that_lack_are_a_sentence(
    cluster: FakeCluster, launcher: KubernetesLauncher, tmp_path: Path
) -> None:
    cluster.create_status = 403
    with pytest.raises(LaunchError, match=r"Making pod hanglab-.* is refused: you may not"):
        launcher.start(make_plan(tmp_path, TELLS))


def test_its_pods_are_what_the_api_takes(cluster: FakeCluster) -> None:
    made = pods.manifest("hanglab-1-0", "hanglab-1", 2, "nccl", 60.0, "/runs/1")
    check(made)
    (container,) = made["spec"]["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "2"}
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert made["spec"]["activeDeadlineSeconds"] > 60


@pytest.mark.parametrize(
    "name",
    [
        "case/../x", "case/pod-0/../../x", "case/pod-1/host.json", "case/job.json", "log/../x",
        "log/ranks/0", "/etc/passwd", "log/.bashrc", "other/x", "case/pod-0",
    ],
)  # fmt: skip
def test_a_pod_writes_into_its_own_hosts_folder_alone(tmp_path: Path, name: str) -> None:
    plan = make_plan(tmp_path, TELLS)
    before = sorted(tmp_path.rglob("*"))
    taken = EvidenceFiles(plan)
    taken.take(0, "pod-0", name, base64.b64encode(b"x").decode())
    assert sorted(tmp_path.rglob("*")) == before
    taken.take(0, "pod-0", "case/pod-0/host.json", base64.b64encode(b"{").decode())
    taken.take(0, "pod-0", "case/pod-0/host.json", base64.b64encode(b"}").decode())
    assert (plan.case_dir / "hosts" / "pod-0" / "host.json").read_text() == "{}"


def test_it_is_offered_only_where_a_cluster_answers(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = capability.__wrapped__("kubernetes")
    assert found.available and "namespace ml" in found.reason
    monkeypatch.setenv("KUBECONFIG", "/nonexistent")
    assert not capability.__wrapped__("kubernetes").available
