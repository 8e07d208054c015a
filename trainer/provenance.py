"""Where a run comes from: commit, package versions, hardware. Torch is asked only when it is already loaded."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

_PACKAGES = (
    "torch",
    "transformers",
    "peft",
    "tokenizers",
    "safetensors",
    "numpy",
    "pydantic",
    "vllm",
    "deepspeed",
    "math-verify",
)


def commit() -> str:
    """The code's git commit with "+changed" when files differ from it; "unknown" outside a checkout."""
    here = Path(__file__).parent
    try:
        found = _git(here, "rev-parse", "HEAD")
        return f"{found}+changed" if _git(here, "status", "--porcelain", "--", ".") else found
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def model_fingerprint(directory: Path) -> str:
    """First 12 hex digits of a hash over weights, model config and tokenizer: the same model, the same text."""
    digest = hashlib.sha256()
    files = [
        p for p in directory.iterdir() if p.suffix == ".safetensors" or p.name in ("config.json", "tokenizer.json")
    ]
    for file in sorted(files):
        digest.update(f"{file.name}\0{file.stat().st_size}\0".encode())
        with file.open("rb") as data:
            while block := data.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()[:12]


def settings_fingerprint(values: Mapping[str, Any]) -> str:
    """First 12 hex digits of a hash over plain values, whatever the order of their keys."""
    text = json.dumps(values, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:12]


def versions() -> dict[str, str]:
    """Versions of Python and of the packages results depend on, as far as they are installed."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def hardware() -> dict[str, Any]:
    """Machine, cores this process may use, memory, and CUDA devices when torch is loaded."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    torch = sys.modules.get("torch")
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if torch else []
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "machine": platform.machine(),
        "system": platform.platform(),
        "cores": cores,
        "memory_bytes": memory_bytes,
        "gpus": gpus,
    }


def _git(directory: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(directory), *arguments], capture_output=True, text=True, timeout=5, check=True
    )
    return done.stdout.strip()
