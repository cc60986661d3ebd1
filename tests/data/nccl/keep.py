"""Keeps the Case of a job for machines without a GPU.

    python tests/data/nccl/keep.py artifacts/<time>/<scenario>/<fault|control>/<k>

Host names and folders of the machine are replaced in what is text; pickles are
kept byte for byte, since damage in them is itself evidence.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
MOST_BYTES = 1 << 20


def versions() -> dict[str, str]:
    """torch, NCCL, driver and GPU of this machine."""
    import torch

    found = {"torch": torch.__version__, "cuda": str(torch.version.cuda)}
    if torch.cuda.is_available():
        found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
        query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
        told = subprocess.run(query, capture_output=True, text=True, check=True).stdout
        name, driver = told.splitlines()[0].split(", ")
        found |= {"gpu": name, "driver": driver, "gpus": str(len(told.splitlines()))}
    return found


def keep(job: Path, root: Path, about: dict[str, str]) -> Path:
    """Packs ``case/`` and copies ``truth.json`` of a job, into a folder below ``root``.

    Raises SystemExit where there is nothing to keep or too much.
    """
    truth_file, case = job / "truth.json", job / "case"
    if not truth_file.is_file() or not case.is_dir():
        raise SystemExit(f"{job} holds no job: case/ and truth.json are needed")
    truth = json.loads(truth_file.read_bytes())
    words = [truth["scenario"], truth["variant"], f"torch{about['torch'].split('+')[0]}"]
    words += [f"nccl{about.get('nccl', 'none')}", about.get("gpu", "cpu").replace(" ", "_")]
    target = root / "-".join(words)
    if target.exists():
        raise SystemExit(f"{target} exists; remove it first")
    with tempfile.TemporaryDirectory() as name:
        copy = Path(name) / "case"
        shutil.copytree(case, copy)
        replaced = {str(job.resolve()): "/job"}
        for number, host in enumerate(sorted((case / "hosts").iterdir())):
            # As a whole word in JSON or in a path: a short name is part of other words.
            replaced[f'"{host.name}"'] = f'"host{number}"'
            replaced[f"hosts/{host.name}/"] = f"hosts/host{number}/"
            (copy / "hosts" / host.name).rename(copy / "hosts" / f"host{number}")
        for path in copy.rglob("*"):
            if path.suffix in (".json", ".jsonl", ".txt"):
                path.write_text(_replace(path.read_text(errors="replace"), replaced))
        target.mkdir()
        with tarfile.open(target / "case.tar.gz", "w:gz") as archive:
            archive.add(copy, "case")
    size = (target / "case.tar.gz").stat().st_size
    if size > MOST_BYTES:
        shutil.rmtree(target)
        raise SystemExit(f"{case} takes {size} bytes, more than {MOST_BYTES}: keep a shorter run")
    content = json.dumps({**truth, "versions": about}, indent=2)
    (target / "truth.json").write_text(_replace(content, replaced) + "\n")
    return target


def _replace(text: str, names: dict[str, str]) -> str:
    for old, new in names.items():
        text = text.replace(old, new)
    return text


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    print(keep(Path(sys.argv[1]), HERE, versions()))
