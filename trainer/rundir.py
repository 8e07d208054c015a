"""Where everything of a run lies. The layout is the contract between trainer and supervisor (`docs/architecture.md`).

<run>/config.json               frozen settings, format version, code commit, package versions, hardware
      control.jsonl             commands, one JSON object a line, appended by the supervisor
      log.txt                   what the trainer printed
      attempts/<k>/events/<rollout>.jsonl
      tensors/<rollout>.safetensors
      environments/<key>/       code.py, hint.txt, provenance.json, candidates/
      start/, inherited.jsonl   only in a fork (`trainer/fork.py`)
      checkpoints/<rollout>/    COMPLETE written last; model/ is a Hugging Face directory, state/ the rest
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """Paths of one run. Nothing here touches the disk."""

    root: Path

    @property
    def config(self) -> Path:
        return self.root / "config.json"

    @property
    def control(self) -> Path:
        return self.root / "control.jsonl"

    @property
    def log(self) -> Path:
        return self.root / "log.txt"

    @property
    def lock(self) -> Path:
        """Held (flock) by the trainer for as long as it lives."""
        return self.root / "trainer.lock"

    @property
    def attempts(self) -> Path:
        return self.root / "attempts"

    def events(self, attempt: int) -> Path:
        return self.attempts / str(attempt) / "events"

    def event_file(self, attempt: int, rollout: int) -> Path:
        return self.events(attempt) / f"{rollout:06d}.jsonl"

    def tensors(self, rollout: int) -> Path:
        return self.root / "tensors" / f"{rollout:06d}.safetensors"

    def environment(self, key: str) -> Path:
        return self.root / "environments" / key

    @property
    def start(self) -> Path:
        """Only in a fork: the weights it starts from, a Hugging Face directory."""
        return self.root / "start"

    @property
    def inherited(self) -> Path:
        """Only in a fork: events about what it took over."""
        return self.root / "inherited.jsonl"

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    def checkpoint(self, rollout: int) -> Path:
        return self.checkpoints / f"{rollout:06d}"
