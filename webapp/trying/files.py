"""Whether a checkpoint's files are there and can be a model: what a page can tell without loading anything."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trainer.checkpoint_files import MARKER, read_marker
from trainer.rundir import RunDirectory
from webapp.runs.models import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Why a checkpoint cannot be tried: ``kind`` is gone, damaged or weightless."""

    kind: str
    what: str
    advice: str


def why_not(*, run: Run, name: str) -> Problem | None:
    """What prevents trying it; None when it looks whole. Checksums are compared when it is loaded."""
    folder = RunDirectory(Path(run.directory)).checkpoints / name
    if not run.directory or not name.isdecimal() or not (folder / MARKER).is_file():
        return Problem(
            kind="gone",
            what=f"Checkpoint {name} of {run} is not on the disk (any more).",
            advice="Runs keep as many as their settings checkpoint.keep_last, keep_every and keep_best say; choose one that is there.",
        )
    try:
        files = {str(file): int(facts["bytes"]) for file, facts in read_marker(folder)["files"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return Problem(
            kind="damaged",
            what=f"Checkpoint {name} of {run} is damaged: its {MARKER} file cannot be read ({error}).",
            advice="Choose another one, or let the run save a new one.",
        )
    wrong = next((file for file, size in files.items() if _size(folder / file) != size), None)
    if wrong is not None:
        return Problem(
            kind="damaged",
            what=f"Checkpoint {name} of {run} is damaged: {wrong} is missing or does not have the recorded size.",
            advice="Choose another one, or let the run save a new one.",
        )
    if not any(file.startswith("model/") and file.endswith(".safetensors") for file in files):
        return Problem(
            kind="weightless",
            what=f"Checkpoint {name} of {run} holds no weights (model/*.safetensors).",
            advice="It may have been imported without them: copy the whole checkpoint and import the run again, or choose another one.",
        )
    return None


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None
