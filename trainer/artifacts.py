"""Files of environments in the run directory: code, hint and provenance, rejected candidates included.

environments/<key>/code.py, hint.txt, provenance.json, candidates/<candidate>.json
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainer.eventlog import disk_error
from trainer.events import CandidateJudged, EnvironmentAdded
from trainer.rundir import RunDirectory


def write_candidate(run: RunDirectory, judged: CandidateJudged) -> None:
    """Keep a design attempt with its prompt, reply, code, stages and verdict."""
    directory = run.environment(judged.environment) / "candidates"
    _write(directory / f"{judged.candidate}.json", _json(judged.model_dump(mode="json")))


def write_environment(run: RunDirectory, added: EnvironmentAdded, judged: CandidateJudged) -> None:
    """Keep an accepted environment: its code, and where it came from."""
    directory = run.environment(added.environment)
    _write(directory / "code.py", added.code)
    provenance = added.model_dump(mode="json", exclude={"code"}) | {
        "stages": [stage.model_dump(mode="json") for stage in judged.stages],
        "prompt_tokens": judged.prompt_tokens,
        "reply_tokens": judged.reply_tokens,
    }
    _write(directory / "provenance.json", _json(provenance))


def write_frozen(run: RunDirectory, added: EnvironmentAdded, origin: Mapping[str, str | None]) -> None:
    """Keep an environment of a fixed pool: its code, and which one of which pool it is."""
    directory = run.environment(added.environment)
    _write(directory / "code.py", added.code)
    _write(
        directory / "provenance.json", _json(added.model_dump(mode="json", exclude={"code"}) | {"origin": dict(origin)})
    )


def write_hint(run: RunDirectory, environment: str, text: str) -> None:
    """Keep the hint of an environment."""
    _write(run.environment(environment) / "hint.txt", text)


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=True, allow_nan=False, indent=1) + "\n"


def _write(path: Path, text: str) -> None:
    """Aside, then rename: a kill leaves the old file or the new one."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_name(f".{path.name}.part")
        aside.write_bytes(text.encode("utf-8", "replace"))
        aside.rename(path)
    except OSError as error:
        raise disk_error(error, f"environment file {path.name}") from error
