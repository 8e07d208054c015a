"""Checkpoints: written aside, forced to the disk, renamed, and marked COMPLETE (with checksums) last.

checkpoints/<next rollout>/model/        an ordinary Hugging Face directory
                           state/state.json        the loop's state (trainer/state.py)
                           state/waiting.safetensors  token ids and log-probs of waiting designer samples
                           state/learner.pt        optimiser and generators, readable with weights_only
                           COMPLETE                format, next rollout, size and SHA-256 of every file
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from trainer.config import CheckpointConfig
from trainer.errors import TrainerError
from trainer.eventlog import disk_error
from trainer.learn.engine import Learner
from trainer.rundir import RunDirectory

CHECKPOINT_FORMAT = 1
MARKER = "COMPLETE"
_ASIDE = "tmp-"
_TENSOR_FIELDS = {"prompt_ids": torch.int64, "token_ids": torch.int64, "logprobs": torch.float64}


@dataclass(frozen=True, slots=True)
class Saved:
    """A finished checkpoint: directory name, size, and the seconds it took."""

    name: str
    next_rollout: int
    bytes: int
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class Loaded:
    """A checkpoint whose checksums held: where its model lies, the loop's state, and the learner's state on the CPU."""

    name: str
    next_rollout: int
    model_directory: Path
    state: dict[str, Any]
    learner_state: dict[str, Any]


class Checkpoints:
    """Saving, finding and pruning the checkpoints of one run."""

    def __init__(self, run: RunDirectory, config: CheckpointConfig) -> None:
        self._run = run
        self._config = config
        self._pending: tuple[Path, int, dict[str, Any], float] | None = None

    def prepare(self, learner: Learner, state: Mapping[str, Any]) -> None:
        """Write everything aside and force it to the disk; nothing is visible before `commit`.

        `state` is `TrainingState.to_dict()`. Raises `LimitError` when the disk is full; what was written aside is removed then.
        """
        started = time.monotonic()
        next_rollout = int(state["next_rollout"])
        aside = self._run.checkpoints / f"{_ASIDE}{next_rollout:06d}"
        try:
            shutil.rmtree(aside, ignore_errors=True)
            (aside / "state").mkdir(parents=True)
            (aside / "model").mkdir()
            learner.save_model(aside / "model")
            torch.save(learner.state(), aside / "state" / "learner.pt")
            _write_state(aside / "state", state)
            files = {
                p.relative_to(aside).as_posix(): _digest_and_sync(p) for p in sorted(aside.rglob("*")) if p.is_file()
            }
            for directory in (aside / "state", aside / "model", aside):
                _sync_directory(directory)
        except OSError as error:
            shutil.rmtree(aside, ignore_errors=True)
            raise disk_error(error, f"checkpoint {next_rollout:06d}") from error
        except TrainerError:
            shutil.rmtree(aside, ignore_errors=True)
            raise
        marker = {"format": CHECKPOINT_FORMAT, "next_rollout": next_rollout, "files": files}
        self._pending = (aside, next_rollout, marker, started)

    def commit(self) -> Saved:
        """Make the prepared checkpoint the newest one and remove those the retention does not keep."""
        assert self._pending is not None, "prepare comes first"
        aside, next_rollout, marker, started = self._pending
        final = self._run.checkpoint(next_rollout)
        try:
            if final.exists():  # of an older attempt, or damaged
                (final / MARKER).unlink(missing_ok=True)
                shutil.rmtree(final)
            aside.rename(final)
            _sync_directory(self._run.checkpoints)
            text = json.dumps(marker, indent=1).encode()
            with (final / f"{MARKER}.part").open("wb") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            (final / f"{MARKER}.part").rename(final / MARKER)
            _sync_directory(final)
        except OSError as error:
            raise disk_error(error, f"checkpoint {next_rollout:06d}") from error
        self._pending = None
        self._prune(next_rollout)
        size = sum(int(f["bytes"]) for f in marker["files"].values()) + len(text)
        return Saved(final.name, next_rollout, size, time.monotonic() - started)

    def exists(self, next_rollout: int) -> bool:
        """Whether a finished checkpoint for this rollout is there."""
        return (self._run.checkpoint(next_rollout) / MARKER).is_file()

    def newest(self, warn: Callable[[str], None]) -> Loaded | None:
        """The newest checkpoint whose files are whole; damaged ones are skipped with a warning. Leftovers of a kill are removed."""
        for leftover in self._run.checkpoints.glob(f"{_ASIDE}*"):
            shutil.rmtree(leftover, ignore_errors=True)
        for directory in reversed(self._finished()):
            problem = damage(directory)
            if problem:
                warn(f"checkpoint {directory.name} is damaged and was skipped: {problem}")
                continue
            return load(directory)
        return None

    def _finished(self) -> list[Path]:
        if not self._run.checkpoints.is_dir():
            return []
        return sorted(p for p in self._run.checkpoints.iterdir() if p.name.isdigit() and (p / MARKER).is_file())

    def _prune(self, newest: int) -> None:
        """Keep the newest `keep_last`, every `keep_every`-th, and nothing beyond the newest (left by an older attempt)."""
        finished = [p for p in self._finished() if int(p.name) <= newest]
        every = self._config.keep_every
        kept = {p.name for p in finished[-self._config.keep_last :]}
        kept |= {p.name for p in finished if every and int(p.name) % every == 0}
        for directory in self._run.checkpoints.iterdir():
            if directory.name.isdigit() and directory.name not in kept:
                (directory / MARKER).unlink(missing_ok=True)
                shutil.rmtree(directory, ignore_errors=True)


def damage(directory: Path) -> str:
    """What is wrong with a finished checkpoint, "" when every file has the recorded size and checksum."""
    try:
        marker = json.loads((directory / MARKER).read_bytes())
        if marker["format"] != CHECKPOINT_FORMAT:
            return f"format {marker['format']}, this version reads {CHECKPOINT_FORMAT}"
        for name, expected in marker["files"].items():
            path = directory / name
            if not path.is_file():
                return f"{name} is missing"
            if path.stat().st_size != expected["bytes"] or _digest(path) != expected["sha256"]:
                return f"{name} does not have the recorded content"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"its {MARKER} marker is unreadable ({error})"
    return ""


def load(directory: Path) -> Loaded:
    """Read a checkpoint whose checksums were verified."""
    state = json.loads((directory / "state" / "state.json").read_bytes())
    tensors = load_file(directory / "state" / "waiting.safetensors")
    for number, sample in enumerate(state["waiting"]):
        for field in _TENSOR_FIELDS:
            sample[field] = tensors[f"{number}.{field}"].tolist()
    learner_state = torch.load(directory / "state" / "learner.pt", map_location="cpu", weights_only=True)
    return Loaded(directory.name, int(state["next_rollout"]), directory / "model", state, learner_state)


def _write_state(directory: Path, state: Mapping[str, Any]) -> None:
    tensors: dict[str, torch.Tensor] = {"format": torch.tensor([CHECKPOINT_FORMAT])}
    waiting = []
    for number, sample in enumerate(state["waiting"]):
        for field, dtype in _TENSOR_FIELDS.items():
            tensors[f"{number}.{field}"] = torch.tensor(sample[field], dtype=dtype)
        waiting.append({name: value for name, value in sample.items() if name not in _TENSOR_FIELDS})
    save_file(tensors, directory / "waiting.safetensors")
    text = json.dumps({**state, "waiting": waiting}, allow_nan=False, ensure_ascii=True, indent=1)
    (directory / "state.json").write_text(text, encoding="ascii")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest_and_sync(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        os.fsync(file.fileno())
    return {"bytes": path.stat().st_size, "sha256": digest}


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
