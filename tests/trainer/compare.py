"""Whether two runs are the same, bit for bit, wall-clock fields aside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from trainer.checkpoint_files import damage
from trainer.eventlog import attempts, read_events
from trainer.rundir import RunDirectory

WALL_CLOCK = {"elapsed_s", "phase_s", "eta_s", "bytes"}
ATTEMPT_ONLY = {"run_started", "run_state", "corpus", "warning", "document"}


def effective_events(run: RunDirectory) -> list[dict[str, Any]]:
    """Events that count: rows of an attempt from the next one's first rollout on are superseded."""
    numbers = [n for n in attempts(run) if next(read_events(run, n), None)]  # one killed while it started said nothing
    starts = {n: next(read_events(run, n))["payload"]["start_rollout"] for n in numbers}
    kept = []
    for n in numbers:
        end = min((starts[later] for later in numbers if later > n), default=10**9)
        for event in read_events(run, n):
            if event["kind"] in ATTEMPT_ONLY:
                continue
            # The checkpoint event of the rollout before may be repeated by the attempt that starts from it.
            rollout = event["rollout"] if event["rollout"] is not None else event["payload"].get("next_rollout", 0) - 1
            if rollout < end:
                kept.append({"rollout": rollout, "kind": event["kind"], "payload": timeless(event["payload"])})
    return kept


def timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            k: timeless(v)
            for k, v in value.items()
            if k not in WALL_CLOCK and not str(k).startswith(("time/", "perf/"))
        }
    return [timeless(v) for v in value] if isinstance(value, list) else value


def files_of(root: Path, folder: str) -> dict[str, Any]:
    """Contents by name; JSON without its wall-clock fields."""
    paths = [p for p in (root / folder).rglob("*") if p.is_file()]
    return {
        str(p.relative_to(root)): timeless(json.loads(p.read_text())) if p.suffix == ".json" else p.read_bytes()
        for p in paths
    }


def assert_same_run(one: RunDirectory, other: RunDirectory) -> None:
    first, second = effective_events(one), effective_events(other)
    for a, b in zip(first, second, strict=False):
        assert a == b
    assert len(first) == len(second)
    for folder in ("tensors", "environments"):
        files, others = files_of(one.root, folder), files_of(other.root, folder)
        assert sorted(files) == sorted(others)
        for name, content in files.items():
            assert content == others[name], name
    newest = sorted(p.name for p in one.checkpoints.iterdir())[-1]
    a, b = one.checkpoints / newest, other.checkpoints / newest
    assert damage(a) == damage(b) == ""
    for name in ("model/model.safetensors", "state/state.json", "state/waiting.safetensors"):
        assert (a / name).read_bytes() == (b / name).read_bytes(), name
    states = [torch.load(c / "state" / "learner.pt", weights_only=True) for c in (a, b)]
    assert_equal_states(*states)


def assert_equal_states(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            assert_equal_states(one[key], other[key])
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            assert_equal_states(a, b)
    else:
        assert one == other
