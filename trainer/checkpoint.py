"""Checkpoints: written aside, forced to the disk, renamed, and marked COMPLETE (with checksums) last.

checkpoints/<next rollout>/model/        an ordinary Hugging Face directory
                           state/state.json        the loop's state (trainer/state.py)
                           state/waiting.safetensors  token ids and log-probs of waiting designer samples
                           state/learner.pt        optimiser and generators, readable with weights_only
                           COMPLETE                format, next rollout, size and SHA-256 of every file
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from trainer.checkpoint_files import (
    CHECKPOINT_FORMAT,
    MARKER,
    by_value,
    damage,
    digests_and_sync,
    finished,
    sync_directory,
    write_marker,
)
from trainer.config import CheckpointConfig
from trainer.errors import UserError
from trainer.eventlog import disk_error, write_refusal
from trainer.learn.engine import Learner
from trainer.rundir import RunDirectory

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
            with (aside / "state" / "learner.pt").open(
                "wb", buffering=0
            ) as file:  # a file of ours: its refusals reach us
                torch.save(learner.state(), file)
            _write_state(aside / "state", state)
            files = digests_and_sync(aside)
        except BaseException as error:
            shutil.rmtree(aside, ignore_errors=True)
            refused = write_refusal(error)
            if refused is None:
                raise
            raise disk_error(refused, f"checkpoint {next_rollout:06d}") from error
        marker = {"format": CHECKPOINT_FORMAT, "next_rollout": next_rollout, "files": files}
        self._pending = (aside, next_rollout, marker, started)

    def commit(self, best: float | None = None) -> Saved:
        """Make the prepared checkpoint the newest one and remove those the retention does not keep.

        `best` is the value of `checkpoint.best_metric` in its last rollout, None when it was not measured.
        """
        assert self._pending is not None, "prepare comes first"
        aside, next_rollout, marker, started = self._pending
        marker["best"] = {"metric": self._config.best_metric, "value": best}
        final = self._run.checkpoint(next_rollout)
        try:
            if final.exists():  # of an older attempt, or damaged
                (final / MARKER).unlink(missing_ok=True)
                shutil.rmtree(final)
            aside.rename(final)
            sync_directory(self._run.checkpoints)
            marker_bytes = write_marker(final, marker)
        except OSError as error:
            raise disk_error(error, f"checkpoint {next_rollout:06d}") from error
        self._pending = None
        self._prune(next_rollout)
        size = sum(int(f["bytes"]) for f in marker["files"].values()) + marker_bytes
        return Saved(final.name, next_rollout, size, time.monotonic() - started)

    def exists(self, next_rollout: int) -> bool:
        """Whether a finished checkpoint for this rollout is there."""
        return (self._run.checkpoint(next_rollout) / MARKER).is_file()

    def newest(self, warn: Callable[[str], None]) -> Loaded | None:
        """The newest checkpoint whose files are whole, None when the run has none; damaged ones are skipped with a warning.

        Raises `UserError` when all are damaged: beginning again would remove them. Leftovers of a kill are removed.
        """
        for leftover in self._run.checkpoints.glob(f"{_ASIDE}*"):
            shutil.rmtree(leftover, ignore_errors=True)
        problems = []
        for directory in reversed(finished(self._run.checkpoints)):
            problem = damage(directory)
            if not problem:
                return load(directory)
            problems.append(f"checkpoint {directory.name} is damaged and was skipped: {problem}")
            warn(problems[-1])
        if problems:
            raise UserError(
                f"no checkpoint of {self._run.root} is whole ({problems[0]}). Restore one from a copy, or remove "
                f"{self._run.checkpoints} to begin again with rollout 0."
            )
        return None

    def _prune(self, newest: int) -> None:
        """Keep the newest `keep_last`, every `keep_every`-th, the `keep_best` best, and nothing beyond the newest (of an older attempt)."""
        there = [p for p in finished(self._run.checkpoints) if int(p.name) <= newest]
        every = self._config.keep_every
        kept = {p.name for p in there[-self._config.keep_last :]}
        kept |= {p.name for p in there if every and int(p.name) % every == 0}
        kept |= {p.name for p, _ in by_value(there, self._config.best_metric)[: self._config.keep_best]}
        for directory in self._run.checkpoints.iterdir():
            if directory.name.isdigit() and directory.name not in kept:
                (directory / MARKER).unlink(missing_ok=True)
                shutil.rmtree(directory, ignore_errors=True)


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
