"""A fixed pool: environments that were written before the run and never change, drawn without replacement (spec 11).

A pool is a JSONL file, a folder of such files, or an exported pool folder (`pool_folder.py`). A line needs `code`; `id`, `skill`,
`hint` and `document` are optional, other keys are ignored. `python -m trainer pool write` makes one. Only reading and drawing here;
gates and events: `draw.py`.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer.config import PoolConfig
from trainer.errors import UserError
from trainer.paths import given_path
from trainer.pool_folder import MANIFEST, is_pool_folder, read_pool_folder

BUILTIN_POOLS = {f"builtin:{name}": Path(__file__).parent / "pools" / f"{name}.jsonl" for name in ("demo", "ladder")}
UNKNOWN_SKILL = "unknown"
_CANDIDATE = "pool/"


@dataclass(frozen=True, slots=True)
class FrozenEnvironment:
    """One environment of a pool: program text, and the hint that was written with it (None: it has none)."""

    id: str
    skill: str
    code: str
    hint: str | None = None
    document: str | None = None
    name: str = ""  # with difficulty: for adaptive pools (`adaptive_pool.py`)
    difficulty: int = 0


class FixedPool:
    """The environments with the order in which they are drawn: shuffled once; when it runs out, shuffled again."""

    def __init__(self, environments: Sequence[FrozenEnvironment], *, source: str, seed: int) -> None:
        """`environments`: at least one, ids unique."""
        self.environments = {environment.id: environment for environment in environments}
        self.source = source
        self.rejected: dict[str, str] = {}
        self._rng = random.Random(seed)  # noqa: S311 - reproducible draws, not secrets
        self._ids = sorted(self.environments)
        self._order = self._shuffled()
        self._next = 0

    @property
    def digest(self) -> str:
        """Hash of everything that is played or shown, independent of the order of the lines."""
        lines = [[e.id, e.skill, e.code, e.hint, e.name, e.difficulty] for _, e in sorted(self.environments.items())]
        return hashlib.sha256(json.dumps(lines, ensure_ascii=True).encode("ascii")).hexdigest()[:16]

    def reject(self, reasons: Mapping[str, str]) -> None:
        """Leave environments out of all later draws: id -> why."""
        self.rejected = dict(reasons)

    def draw(self, count: int) -> list[FrozenEnvironment]:
        """The next `count` different environments; fewer when the pool holds fewer."""
        left = set(self._ids) - set(self.rejected)
        drawn: list[str] = []
        while len(drawn) < min(count, len(left)):
            if self._next >= len(self._order):
                self._order, self._next = self._shuffled(), 0
            chosen = self._order[self._next]
            self._next += 1
            if chosen in left and chosen not in drawn:
                drawn.append(chosen)
        return [self.environments[chosen] for chosen in drawn]

    def observe(self, identifier: str, rewards: Sequence[float]) -> None:
        """What the unhinted plays of one environment returned in a rollout. The order of a fixed pool does not depend on it."""

    def state(self) -> dict[str, Any]:
        version, internal, gauss = self._rng.getstate()
        return {
            "digest": self.digest,
            "order": list(self._order),
            "next": self._next,
            "rng": [version, list(internal), gauss],
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue the draws of a checkpoint. Raises `UserError` when the pool is not the one it was saved with."""
        if state["digest"] != self.digest:
            raise UserError(
                f"pool.path: {self.source} is not the pool this run was started with; a fixed pool must not change: restore "
                "the file, or start a new run"
            )
        version, internal, gauss = state["rng"]
        self._rng.setstate((version, tuple(internal), gauss))
        self._order, self._next = list(state["order"]), int(state["next"])

    def _shuffled(self) -> list[str]:
        order = list(self._ids)
        self._rng.shuffle(order)
        return order


def candidate_of(environment: FrozenEnvironment) -> str:
    """What stands for the candidate key of an environment that came from a pool."""
    return f"{_CANDIDATE}{environment.id}"


def frozen_id(candidate: str) -> str:
    """The id in the pool of such a candidate key."""
    return candidate.removeprefix(_CANDIDATE)


def pool_path(path: str) -> Path:
    """The file or folder a setting names. Raises `UserError` for an unknown built-in pool or a path that is not there."""
    if path.startswith("builtin:") and path not in BUILTIN_POOLS:
        raise UserError(f"pool.path: {path} is not built in; there is {', '.join(BUILTIN_POOLS)}")
    found = BUILTIN_POOLS.get(path) or given_path("pool.path", path)
    if found is None:
        raise UserError(f"pool.path: {path} does not exist; write one with `python -m trainer pool write FILE`")
    return found


def load_pool(config: PoolConfig) -> FixedPool | None:
    """Read the configured pool; None when there is none. Raises `UserError` when it is missing, broken or empty."""
    from trainer.adaptive_pool import AdaptivePool

    if not config.path:
        return None
    environments = read_environments(pool_path(config.path), config.path)
    if not environments:
        raise UserError(
            f'pool.path: {config.path} holds no environment; every line needs an object with text under "code"'
        )
    if not config.adaptive:
        return FixedPool(environments, source=config.path, seed=config.seed)
    if nameless := [environment.id for environment in environments if not environment.name]:
        raise UserError(f'pool.adaptive: {nameless[0]} in {config.path} has no "name"; lines need name and difficulty')
    return AdaptivePool(environments, source=config.path, config=config)


def read_environments(path: Path, name: str) -> list[FrozenEnvironment]:
    """All environments of a file or folder, in order. Raises `UserError` naming file and line of the first broken one."""
    environments: list[FrozenEnvironment] = []
    taken: set[str] = set()
    if is_pool_folder(path):
        for number, record in enumerate(read_pool_folder(path, name), start=1):
            environments.append(_environment(record, "", f"{name}: line {number} of {MANIFEST}", taken))
            taken.add(environments[-1].id)
        return environments
    files = sorted(path.rglob("*.jsonl")) if path.is_dir() else [path]
    for file in files:
        for number, record in _records(file, name):
            environments.append(
                _environment(record, f"{file.stem}-{number:05d}", f"{name}: line {number} of {file.name}", taken)
            )
            taken.add(environments[-1].id)
    return environments


def _records(file: Path, name: str) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        lines = file.read_bytes().split(b"\n")
    except OSError as error:
        raise UserError(f"pool.path: cannot read {file}: {error.strerror or error}") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"pool.path: {name}: line {number} of {file.name} is not JSON: {error}") from error
        if not isinstance(record, dict):
            raise UserError(f"pool.path: {name}: line {number} of {file.name} must hold one JSON object")
        yield number, record


def _environment(record: Mapping[str, Any], fallback: str, where: str, taken: Collection[str]) -> FrozenEnvironment:
    identifier, code = str(record.get("id") or fallback), record.get("code")
    if not isinstance(code, str) or not code.strip():
        raise UserError(f'pool.path: {where} has no program text under "code"')
    if identifier in taken:
        raise UserError(f"pool.path: {where}: the id {identifier!r} is there twice")
    texts = {key: value for key in ("hint", "document") if isinstance(value := record.get(key), str) and value.strip()}
    difficulty = record.get("difficulty", 0)
    if isinstance(difficulty, bool) or not isinstance(difficulty, int) or difficulty < 0:
        raise UserError(f"pool.path: {where}: difficulty must be a whole number from 0, not {difficulty!r}")
    skill, name = str(record.get("skill") or UNKNOWN_SKILL), str(record.get("name") or "")
    return FrozenEnvironment(identifier, skill, code, name=name, difficulty=difficulty, **texts)
