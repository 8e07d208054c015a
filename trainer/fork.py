"""A fork: a new run that goes on from a checkpoint of another one, with changed settings. Imports no torch.

<fork>/start/            the weights it starts from, an ordinary Hugging Face directory: its tokenizer, and the reference of its KL term;
                         not with LoRA, where adapters and KL term go on from the same frozen `model.path`
       checkpoints/<n>/  the same weights with the optimiser's and the loop's state; the first attempt begins from it
       inherited.jsonl   what the source said about the environments taken over; reported again, so that the log stands alone
       environments/     their files
       config.json       the new settings, and `forked_from`: run, checkpoint, changed settings, what was kept and what was reset
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trainer.checkpoint_files import (
    by_value,
    damage,
    digests_and_sync,
    finished,
    read_marker,
    sync_directory,
    write_marker,
)
from trainer.config import RunConfig
from trainer.creation import read_config, write_config
from trainer.errors import UserError
from trainer.eventlog import attempts, disk_error
from trainer.rundir import RunDirectory

_FREE_TO_CHANGE = {"model.context_tokens", "model.dtype", "model.thinking"}
_KEPT = (
    "weights", "optimiser moments and generators", "environments of the current set and their windows",
    "designs that wait for their reward", "environment memory", "judgements of environments", "corpus position",
    "learning-potential means", "baselines",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """Where a run comes from. `changed`: setting -> [source's value, fork's value]; `kept` and `reset` are for people."""

    run: str
    checkpoint: str
    next_rollout: int
    changed: dict[str, list[Any]]
    kept: list[str]
    reset: list[str]


def fork(source: Path, destination: Path, *, config: RunConfig | None = None, checkpoint: str = "") -> Fork:
    """Make `destination` a run directory that goes on from a checkpoint of `source`; `attempt` on it does the rest.

    `config` holds the fork's settings, None the source's own. `checkpoint` is a name under checkpoints/, its
    number, `best` (by the source's checkpoint.best_metric), `latest`, or "": the newest whole one.
    With the source's settings the fork does what the source would have done, bit for bit, except that a KL term is taken against the
    weights the fork starts from (spec 8). The directory appears at once and whole. Raises `UserError` when the source has no such
    checkpoint, the destination is in use, or a changed setting would make the state meaningless; `LimitError` when the disk is full.
    """
    origin, target = RunDirectory(source), RunDirectory(destination)
    old = read_config(origin)
    new = config or old
    if destination.exists() and (not destination.is_dir() or any(destination.iterdir())):
        raise UserError(f"{destination} is not empty; give a new directory for the fork")
    chosen = choose_checkpoint(origin, checkpoint, best_metric=old.checkpoint.best_metric)
    done = int(chosen.name)
    changed = changes(old, new)
    refuse_meaningless(old=old, new=new, done=done)
    aside = RunDirectory(target.root.with_name(f".{target.root.name}.fork"))
    try:
        shutil.rmtree(aside.root, ignore_errors=True)  # of a fork that was killed
        aside.checkpoints.mkdir(parents=True)
        copy = aside.checkpoint(done)
        _copy_whole(chosen, copy)
        state = json.loads((copy / "state" / "state.json").read_bytes())
        made = Fork(
            run=str(source.absolute()), checkpoint=chosen.name, next_rollout=done, changed=changed,
            kept=list(_KEPT), reset=_adapt(state, changed, new),
        )  # fmt: skip
        _rewrite_state(copy, state)
        if not new.lora.rank:
            shutil.copytree(copy / "model", aside.root / aside.start.name, copy_function=_link_or_copy)
        _copy_environments(origin, aside, state)
        write_config(aside, new, forked_from=asdict(made))
        aside.root.rename(target.root)
        sync_directory(target.root.parent)
    except OSError as error:
        shutil.rmtree(aside.root, ignore_errors=True)
        raise disk_error(error, f"the fork {destination}") from error
    except BaseException:
        shutil.rmtree(aside.root, ignore_errors=True)
        raise
    return made


def changes(old: RunConfig, new: RunConfig) -> dict[str, list[Any]]:
    """Settings that differ, by dotted name: [old, new]. The preset's name and description are labels, not settings."""
    before, after = (dict(_flat(c.model_dump(mode="json"))) for c in (old, new))
    return {
        name: [before[name], after[name]]
        for name in before
        if before[name] != after[name] and name not in ("preset", "description")
    }


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def choose_checkpoint(origin: RunDirectory, name: str, *, best_metric: str) -> Path:
    """The checkpoint a person names: its name or number, `best`, or the newest whole one (`latest` or nothing). Raises `UserError`."""
    found = finished(origin.checkpoints)
    if name in ("", "latest"):
        chosen = next((path for path in reversed(found) if not damage(path)), None)
        if chosen is None:
            raise UserError(f"{origin.root} has no whole checkpoint; let it finish a rollout first")
        return chosen
    if name == "best":
        ranked = by_value(found, best_metric)
        if not ranked:
            raise UserError(f"no checkpoint of {origin.root} has a value of {best_metric}; name one: {_there(found)}")
        chosen = ranked[0][0]
    else:
        wanted = name.zfill(6) if name.isdecimal() else name
        chosen = next((path for path in found if path.name == wanted), None)
    if chosen is None:
        raise UserError(f"{origin.root} has no checkpoint {name}; there is {_there(found)}")
    problem = damage(chosen)
    if problem:
        raise UserError(f"checkpoint {chosen.name} of {origin.root} is damaged: {problem}; choose another one")
    return chosen


def _there(found: Sequence[Path]) -> str:
    return ", ".join(path.name for path in found) or "none"


def refuse_meaningless(*, old: RunConfig, new: RunConfig, done: int) -> None:
    """Raise `UserError` for changes after which the state of the checkpoint after rollout `done` would mean something else.

    It names what does not go together; for those who want to know before they fork.
    """
    changed = changes(old, new)
    fixed = {n for n in changed if n.startswith(("model.", "lora.")) and n not in _FREE_TO_CHANGE}
    for name in sorted(fixed | (changed.keys() & {"environment_kind", "engine.learner"})):
        before, after = changed[name]
        raise UserError(
            f"{name} {after!r} does not go with a checkpoint made under {name} {before!r}: its weights, optimiser state and "
            "environments belong together; start a new run for that"
        )
    if new.schedule.rollouts <= done:
        raise UserError(
            f"schedule.rollouts {new.schedule.rollouts} leaves nothing to do after checkpoint {done:06d}; give more rollouts"
        )
    lengths = (old.schedule.regenerate_every, new.schedule.regenerate_every)
    if lengths[0] != lengths[1] and any(done % k for k in lengths):
        raise UserError(
            f"schedule.regenerate_every {lengths[1]} instead of {lengths[0]} does not go with checkpoint {done:06d}: windows would be "
            f"cut or stretched; fork from a checkpoint whose number both {lengths[0]} and {lengths[1]} divide"
        )


def _adapt(state: dict[str, Any], changed: Mapping[str, list[Any]], new: RunConfig) -> list[str]:
    """Change the state where the new settings ask for it; says what starts afresh."""
    state["control_offset"] = 0
    reset = ["control file"]
    if new.loss.kl_coef > 0 and not new.lora.rank:
        reset.append("reference of the KL term: now the weights of this checkpoint")
    if changed.keys() & {"corpus.source", "corpus.seed"}:
        state["corpus"] = None
        reset.append("corpus position")
    if any(name.startswith("pool.") for name in changed):
        state["pool"] = None
        reset.append("order of the fixed pool")
    if changed.keys() & {"reward.gamma_fast", "reward.gamma_slow"}:
        state["trackers"] = {}
        reset.append("learning-potential means")
    if len(state["memory"]) > new.memory.size:
        state["memory"] = state["memory"][-new.memory.size :]
        reset.append(f"environment memory: cut to the newest {new.memory.size}")
    if changed.keys() & {"engine.device", "engine.threads", "engine.sampler"}:
        state["engine"] = {}
        reset.append("measured thread count")
    return reset


def _copy_whole(chosen: Path, copy: Path) -> None:
    """Copy a checkpoint and check the copy: a running source may prune it meanwhile."""
    try:
        shutil.copytree(chosen, copy)
    except (shutil.Error, FileNotFoundError) as error:
        raise UserError(f"checkpoint {chosen.name} could not be copied whole ({error}); fork again") from error
    problem = damage(copy)
    if problem:
        raise UserError(f"checkpoint {chosen.name} could not be copied whole ({problem}); fork again")


def _rewrite_state(copy: Path, state: Mapping[str, Any]) -> None:
    marker = read_marker(copy)
    (copy / "COMPLETE").unlink()
    text = json.dumps(state, allow_nan=False, ensure_ascii=True, indent=1)
    (copy / "state" / "state.json").write_text(text, encoding="ascii")
    write_marker(copy, {**marker, "files": digests_and_sync(copy)})


def _link_or_copy(source: str, target: str) -> str:
    """Two names for one file where the file system can: files of a finished checkpoint are never written again."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
    return target


def _copy_environments(origin: RunDirectory, aside: RunDirectory, state: Mapping[str, Any]) -> None:
    """Files of every environment the state speaks of, and the source's events about the current set."""
    current = [str(e["key"]) for e in state["environments"]]
    named = {str(r["environment"]) for part in ("waiting", "memory", "purged") for r in state.get(part, ())}
    judged = {key for part in ("barred", "quarantined", "weights") for key in state.get(part, {})}
    for key in sorted({*current, *named, *judged}):
        if origin.environment(key).is_dir():
            shutil.copytree(origin.environment(key), aside.environment(key))
    with aside.inherited.open("w", encoding="ascii") as file:
        for kind in ("environment", "hint"):
            told = _last_events(origin, kind, lambda payload: str(payload["environment"]), set(current))
            file.writelines(_line(kind, told[key]) for key in current if key in told)
        for record in state["memory"]:
            file.write(_line("memory_added", {k: v for k, v in record.items() if k != "rollout"}))


def _last_events(
    run: RunDirectory, kind: str, key_of: Callable[[Mapping[str, Any]], str], wanted: set[str]
) -> dict[str, dict[str, Any]]:
    """The newest event of a kind about each wanted environment: in the files of the rollout that wrote it, or inherited."""
    found: dict[str, dict[str, Any]] = {}
    rollouts = sorted({int(key[1:].split("-")[0]) for key in wanted})
    paths = [run.inherited, *(run.event_file(n, r) for n in attempts(run) for r in rollouts)]
    for path in (p for p in paths if p.is_file()):
        with path.open("rb") as lines:
            for line in lines:
                if line.endswith(b"\n") and f'"kind":"{kind}"'.encode() in line:
                    payload = json.loads(line)["payload"]
                    if key_of(payload) in wanted:
                        found[key_of(payload)] = payload
    return found


def _line(kind: str, payload: Mapping[str, Any]) -> str:
    return json.dumps({"kind": kind, "payload": payload}, allow_nan=False, separators=(",", ":")) + "\n"
