"""Manifests against the API's schemas, the Pod Security Standards, and what rights are for."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from kubernetes_support import HANGLAB, check

from hanglab.harness.cli import main
from hanglab.harness.kubernetes.manifests import pod_specs
from hanglab.harness.kubernetes.pod_security import containers, level_of
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case.reader import CaseReader

Manifest = dict[str, Any]


@pytest.fixture
def made(capsys: pytest.CaptureFixture[str]) -> Any:
    """The manifest that the command prints, and what it says besides."""

    def run(*words: str) -> tuple[Manifest, str]:
        assert main(["manifest", *words]) == 0
        printed = capsys.readouterr()
        return yaml.safe_load(printed.out), printed.out + printed.err

    return run


def _calls() -> Iterator[tuple[str, ...]]:
    for kind, recorder, user, ptrace in itertools.product(
        ("jobset", "pytorchjob"),
        ("record", "sidecar", "none"),
        ("1000", "0"),
        ("--ptrace", "--no-ptrace"),
    ):
        yield (
            kind, "train", "--image", "registry/train:1", "--nodes", "3", "--gpus", "2",
            "--ranks-per-node", "2", "--namespace", "ml", "--recorder", recorder, "--user", user,
            ptrace, "--", "train.py", "--rate", "3",
        )  # fmt: skip
    yield ("daemonset",)
    yield "daemonset", "watcher", "--no-ptrace", "--user", "2000", "--node-selector", "pool=gpu"


CALLS = list(_calls())


@pytest.mark.parametrize("call", CALLS, ids=lambda call: "-".join(call[:1] + call[11:16]))
def test_the_api_takes_it(made: Any, call: tuple[str, ...]) -> None:
    manifest, _ = made(*call)
    check(manifest)
    for spec in pod_specs(manifest):
        volumes = [volume["name"] for volume in spec["volumes"]]
        assert len(volumes) == len(set(volumes))
        assert not spec["automountServiceAccountToken"] and not spec["enableServiceLinks"]
        assert not any("hostPath" in volume for volume in spec["volumes"])
        used = set()
        for container in containers(spec):
            used |= {mount["name"] for mount in container["volumeMounts"]}
            places = [mount["mountPath"] for mount in container["volumeMounts"]]
            assert len(places) == len(set(places))
            assert {"cpu", "memory"} <= container["resources"]["limits"].keys()
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"] and not context["allowPrivilegeEscalation"]
            assert context["capabilities"]["drop"] == ["ALL"]
            # Linux would give them to nobody else.
            assert context["runAsUser"] == 0 or "add" not in context["capabilities"]
        assert used == set(volumes)


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("restartPolicy", 3),
        ("shareProcessNamespaces", True),
        ("containers", [{"image": "a"}]),
        ("volumes", [{"name": "a", "emptyDirectory": {}}]),
    ],
)
@pytest.mark.parametrize("kind", ["jobset", "pytorchjob"])
def test_the_schemas_refuse_what_a_server_would(
    made: Any, kind: str, field: str, wrong: Any
) -> None:
    manifest, _ = made(kind, "train", "--image", "a", "--", "train.py")
    [spec] = pod_specs(manifest)
    spec[field] = wrong
    with pytest.raises(jsonschema.ValidationError):
        check(manifest)


@pytest.mark.parametrize(
    ("options", "level"),
    [
        (["--recorder", "record"], "restricted"),
        (["--recorder", "record", "--user", "0", "--no-ptrace"], "baseline"),
        (["--recorder", "record", "--user", "0"], "privileged"),
        (["--recorder", "sidecar"], "privileged"),
        (["--recorder", "sidecar", "--no-ptrace"], "restricted"),
        (["--recorder", "none"], "restricted"),
    ],
)
def test_pod_security_standard_is_said_and_no_more_rights_are_asked_for(
    made: Any, options: list[str], level: str
) -> None:
    manifest, said = made("jobset", "train", "--image", "a", *options, "--", "train.py")
    [spec] = pod_specs(manifest)
    assert level_of(spec)[0] == level and f"Pod Security Standard: {level}" in said
    added = [c["securityContext"]["capabilities"].get("add", []) for c in containers(spec)]
    assert any(added) == (level == "privileged") and ("SYS_PTRACE:" in said) == any(added)


@pytest.mark.parametrize("option", ["--ptrace", "--no-ptrace"])
def test_a_daemonset_sees_its_node_and_is_never_below_privileged(made: Any, option: str) -> None:
    manifest, said = made("daemonset", option)
    [spec] = pod_specs(manifest)
    assert spec["hostPID"] and level_of(spec)[0] == "privileged"
    assert ("shows no stacks" in said) == (option == "--no-ptrace")


def test_ranks_of_a_sidecars_own_user_need_one_right_less(made: Any) -> None:
    options = ("--image", "a", "--recorder", "sidecar", "--user", "0", "--", "train.py")
    [spec] = pod_specs(made("pytorchjob", "train", *options)[0])
    [agent] = spec["initContainers"]
    assert agent["securityContext"]["capabilities"]["add"] == ["SYS_PTRACE"]
    assert agent["restartPolicy"] == "Always" and spec["shareProcessNamespace"]


def test_recorded_command_is_left_hanging_unless_its_case_is_sent(made: Any) -> None:
    start = ("jobset", "train", "--image", "a")
    [spec] = pod_specs(made(*start, "--", "train.py")[0])
    words = spec["containers"][0]["command"]
    assert words[:6] == ["hanglab", "record", "--out", "/hanglab/case", "--hang-after", "30"]
    assert words[6:10] == ["--then", "leave", "--", "torchrun"] and words[-1] == "train.py"
    assert "--master-addr=train-workers-0-0.train" in words
    [spec] = pod_specs(made(*start, "--out", "s3://hangs/a", "--", "train.py")[0])
    container = spec["containers"][0]
    assert "s3://hangs/a/$(HANGLAB_POD)" in container["command"]
    assert "kill" in container["command"]
    assert "HANGLAB_POD" in {one["name"] for one in container["env"]}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["jobset", "Train_1", "--image", "a", "--", "train.py"], "cannot name a job"),
        (["jobset", "t" * 41, "--image", "a", "--", "train.py"], "cannot name a job"),
        (["jobset", "train", "--image", "a"], "No script is given"),
        (["jobset", "train", "--image", "a", "--memory", "lots", "--", "t.py"], "is no amount"),
        (["pytorchjob", "train", "--image", "a", "--out", "here", "--", "t.py"], "takes a URL"),
        (["daemonset", "--node-selector", "gpu"], "LABEL=VALUE"),
    ],
)
def test_wrong_usage(capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    assert main(["manifest", *words]) == 64
    assert said in capsys.readouterr().err


def test_agents_watch_from_what_their_manifest_runs(made: Any, tmp_path: Path) -> None:
    [spec] = pod_specs(made("daemonset", "--out", "s3://hangs")[0])
    assert spec["containers"][0]["command"][-1] == "s3://hangs/$(HANGLAB_POD)"
    [spec] = pod_specs(made("daemonset")[0])
    words = [w.replace("/hanglab/", f"{tmp_path}/") for w in spec["containers"][0]["command"]]
    assert words[0] == "hanglab"
    with subprocess.Popen(
        [*HANGLAB, *words[1:], "--below", str(os.getpid())], stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            said = process.stderr.readline()
            assert f"Cases go below {tmp_path}/state/cases" in said
        finally:
            process.terminate()
        assert process.wait(120) == 0


_RANK = """
import time

def stuck_here():
    print("there", flush=True)
    time.sleep(600)

stuck_here()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to drop: run it as root")
@pytest.mark.parametrize("recorder", ["sidecar", "nothing"])
def test_rights_of_the_sidecar_suffice_for_ranks_of_another_user(
    made: Any, tmp_path: Path, recorder: str
) -> None:
    """A rank as the trainer's container has it, and a capture with the agent's rights."""
    options = ("--image", "a", "--recorder", "sidecar", "--", "train.py")
    [spec] = pod_specs(made("jobset", "train", *options)[0])
    [trainer], [agent] = spec["containers"], spec["initContainers"]
    if recorder == "nothing":
        agent["securityContext"]["capabilities"]["add"] = []
    # A mount namespace of its own, as every container has.
    command = ["unshare", "--mount", *_dropping(trainer["securityContext"])]
    rank = subprocess.Popen(
        [*command, sys.executable, "-c", _RANK],
        stdout=subprocess.PIPE,
        env={**os.environ, "RANK": "0", "WORLD_SIZE": "1"},
    )
    try:
        assert rank.stdout is not None and rank.stdout.readline() == b"there\n"
        case = tmp_path / "case"
        done = subprocess.run(
            [*_dropping(agent["securityContext"]), *HANGLAB, "capture", str(rank.pid), "--watch",
             "0.5", "--out", case],
            capture_output=True, text=True, timeout=280, check=False,
        )  # fmt: skip
    finally:
        rank.kill()
        rank.wait(60)
    if recorder == "nothing":
        assert done.returncode == 4 and "may not be read" in done.stderr, done.stderr
        return
    assert done.returncode in (0, 2), done.stderr
    [seen] = CaseReader(case).ranks
    samples = list(seen.read(files.STACKS))
    assert {sample.source for sample in samples} == {"py-spy"}
    functions = {f.function for s in samples for t in s.threads for f in t.frames}
    assert "stuck_here" in functions


def _dropping(context: Manifest) -> list[str]:
    """Words that run a command with the rights of a container, as a runtime gives them."""
    added = [f"+{name.lower()}" for name in context["capabilities"].get("add", [])]
    user, group = str(context["runAsUser"]), str(context["runAsGroup"])
    return [
        "setpriv", "--reuid", user, "--regid", group, "--clear-groups", "--no-new-privs",
        "--inh-caps=-all", f"--bounding-set={','.join(['-all', *added])}",
    ]  # fmt: skip
