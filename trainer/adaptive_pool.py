"""A fixed pool with adaptive difficulty, as RLVE trains on (spec 11): per environment a sliding window of difficulties that moves up.

Lines of the pool name their environment (`name`) and how hard they are (`difficulty`, a whole number); lines of the same name are the same
environment at other difficulties. Every set draws different names, and for each one a difficulty of its window, uniformly. Only plays at
the window's upper end count: when enough were played and enough of them won, the window moves up by one; the counters then start again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from trainer.config import PoolConfig
from trainer.fixed_pool import FixedPool, FrozenEnvironment


@dataclass(slots=True)
class DifficultyWindow:
    """Difficulties in play, both ends included, and how the plays at the upper end went since it last moved."""

    low: int = 0
    high: int = 0
    attempts: int = 0
    successes: int = 0

    def update(
        self, difficulty: int, reward: float, *, accuracy: float, episodes: int, width: int, hardest: int
    ) -> None:
        """Count one play. `accuracy`, `episodes`: share of wins and number of plays that move the window; `width`: its largest size."""
        if difficulty != self.high:
            return
        self.attempts += 1
        self.successes += reward > 0
        if self.attempts < episodes:
            return
        if self.successes / self.attempts >= accuracy and self.high < hardest:
            self.high += 1
            self.low = max(self.low, self.high - width + 1)
        self.attempts = self.successes = 0


class AdaptivePool(FixedPool):
    """The pool's environments by name and difficulty. Difficulties that a name lacks are skipped: its window counts those it has."""

    def __init__(self, environments: Sequence[FrozenEnvironment], *, source: str, config: PoolConfig) -> None:
        super().__init__(environments, source=source, seed=config.seed)
        self._config = config
        self.windows = {name: DifficultyWindow() for name in sorted({e.name for e in environments})}

    def draw(self, count: int) -> list[FrozenEnvironment]:
        """`count` different names (all, when the pool has fewer), each at a difficulty of its window."""
        ladders = self._ladders()
        names = sorted(ladders)
        chosen = self._rng.sample(names, min(count, len(names)))
        return [self._one(ladders[name], self.windows[name]) for name in chosen]

    def observe(self, identifier: str, rewards: Sequence[float]) -> None:
        """Unhinted rewards of one rollout, in the order of the plays. Of what is no part of the pool (any more) nothing is noted.

        A fork takes the environments in play along, whatever its own pool holds.
        """
        environment = self.environments.get(identifier)
        if environment is None or identifier in self.rejected:
            return
        ladder = self._ladders()[environment.name]
        difficulty = next(step for step, rungs in enumerate(ladder) if environment in rungs)
        config = self._config
        for reward in rewards:
            self.windows[environment.name].update(
                difficulty,
                reward,
                accuracy=config.adaptive_accuracy,
                episodes=config.adaptive_episodes,
                width=config.adaptive_width,
                hardest=min(config.hardest, len(ladder) - 1),
            )

    def state(self) -> dict[str, Any]:
        return super().state() | {"windows": {name: asdict(window) for name, window in self.windows.items()}}

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self.windows = {name: DifficultyWindow(**values) for name, values in state["windows"].items()}

    def _one(self, ladder: Sequence[Sequence[FrozenEnvironment]], window: DifficultyWindow) -> FrozenEnvironment:
        step = self._rng.randint(min(window.low, len(ladder) - 1), min(window.high, len(ladder) - 1))
        return self._rng.choice(ladder[step])

    def _ladders(self) -> dict[str, list[list[FrozenEnvironment]]]:
        """Name -> for each of its difficulties, easiest first, the environments that passed the gates."""
        found: dict[str, dict[int, list[FrozenEnvironment]]] = {}
        for identifier, environment in sorted(self.environments.items()):
            if identifier not in self.rejected:
                found.setdefault(environment.name, {}).setdefault(environment.difficulty, []).append(environment)
        return {name: [rungs for _, rungs in sorted(ladder.items())] for name, ladder in found.items()}
