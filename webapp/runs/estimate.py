"""What a run will do and how much disk it will take, before it is started; sizes come from an earlier run of the same model."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from math import gcd
from pathlib import Path

from trainer.config import RunConfig
from trainer.rundir import RunDirectory
from webapp.runs.models import Checkpoint, Run
from webapp.runs.services import runs_directory


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Counts follow from the settings. Sizes are None where no earlier run says how large things are; ``basis`` is that run."""

    environments: int
    unhinted: int
    hinted: int
    checkpoints: int
    checkpoint_bytes: int | None
    log_bytes: int | None
    free_bytes: int | None
    basis: Run | None

    @property
    def episodes(self) -> int:
        """Of both arms."""
        return self.unhinted + self.hinted

    @property
    def total_bytes(self) -> int | None:
        """Checkpoints that are kept and everything that is logged."""
        if self.checkpoint_bytes is None or self.log_bytes is None:
            return None
        return self.checkpoint_bytes + self.log_bytes

    @property
    def is_too_large(self) -> bool:
        """True when it will not fit on the disk as it is now."""
        return self.total_bytes is not None and self.free_bytes is not None and self.total_bytes > self.free_bytes


def estimate_of(*, config: RunConfig) -> Estimate:
    """The estimate for a run of these settings."""
    schedule = config.schedule
    sets = -(-schedule.rollouts // schedule.regenerate_every)
    checkpoints = _kept(config)
    basis, checkpoint_bytes, log_bytes = _sizes(config)
    unhinted = schedule.environments * schedule.plays * schedule.rollouts
    hinted = schedule.environments * schedule.hinted_plays * sets
    return Estimate(
        environments=schedule.environments * sets, unhinted=unhinted, hinted=hinted, checkpoints=checkpoints,
        checkpoint_bytes=None if checkpoint_bytes is None else checkpoint_bytes * checkpoints,
        log_bytes=None if log_bytes is None else round(log_bytes * (unhinted + hinted)),
        free_bytes=_free(), basis=basis,
    )  # fmt: skip


def _kept(config: RunConfig) -> int:
    """How many checkpoints are there at the end, at most: the best may be among the newest, or those of keep_every."""
    kept = config.checkpoint
    saved = -(-config.schedule.rollouts // kept.every)  # every so many rollouts, and after the last one
    older = max(0, saved - kept.keep_last)
    every = older // (kept.keep_every // gcd(kept.every, kept.keep_every)) if kept.keep_every else 0
    return min(saved, kept.keep_last + every + kept.keep_best)


def _sizes(config: RunConfig) -> tuple[Run | None, int | None, float | None]:
    """The newest run of the same model that has a checkpoint, its checkpoint's size, and its log's bytes per episode."""
    checkpoint = (
        Checkpoint.objects.filter(run__config__model__path=config.model.path, run__rollouts_done__gt=0)
        .select_related("run")
        .order_by("-id")
        .first()
    )
    if checkpoint is None:
        return None, None, None
    run = checkpoint.run
    episodes = run.episodes.count()
    logged = directory_bytes(RunDirectory(Path(run.directory)).attempts) if run.directory else None
    return run, checkpoint.bytes, None if logged is None or not episodes else logged / episodes


def directory_bytes(directory: Path) -> int | None:
    """What the files below a directory hold, links not followed; None when it is not there."""
    if not directory.is_dir():
        return None
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            try:
                total += Path(folder, name).lstat().st_size
            except FileNotFoundError:  # removed meanwhile: an old checkpoint
                continue
    return total


def _free() -> int | None:
    folder = runs_directory()
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None
