"""How often a model wins the programs of an evaluation set without a hint; everything through the sandbox, all seeds fixed.

Not part of a run: nothing here is trained on. The episode rules are those of a run (spec 6): prompts, temperature, turn and token
limits come from the same settings; faults have no reward and are left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sandbox import EpisodeHandle, Opened, Stepped
from trainer.agent import action_of
from trainer.config import RunConfig
from trainer.experiments.intervals import Interval, interval
from trainer.experiments.sets import EvaluationSet, family_of
from trainer.fixed_pool import FrozenEnvironment
from trainer.learn.advantage import outcome_reward
from trainer.policy import Policy
from trainer.prompts.sets import prompt_set
from trainer.rollout.dialogue import Dialogue
from trainer.rollout.engine import Sampled, SampleRequest
from trainer.rollout.open import open_sampler
from trainer.rollout.pool import EnvironmentPool
from trainer.rollout.tokens import ChatFormat
from trainer.run import open_pool
from trainer.seeds import stable_seed
from trainer.weights import load_tokenizer

EVALUATION_SEED = 20261130


@dataclass(frozen=True, slots=True)
class Score:
    """Result of one set. `by_environment`: id -> share of its plays that were won; environments without a valid play are missing."""

    plays: int
    faults: int
    by_environment: dict[str, float]

    @property
    def win_rate(self) -> Interval | None:
        """Mean over environments; the environment is the independent unit, its plays are not."""
        return interval(list(self.by_environment.values()))

    def by_family(self) -> dict[str, float]:
        """Mean win rate of each family."""
        groups: dict[str, list[float]] = {}
        for identifier, share in self.by_environment.items():
            groups.setdefault(family_of(identifier), []).append(share)
        return {name: math.fsum(shares) / len(shares) for name, shares in sorted(groups.items())}

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, rounded to what 8 plays can tell."""
        rate = self.win_rate
        return {
            "win_rate": None if rate is None else round(rate.mean, 5),
            "half_interval": None if rate is None or rate.half is None else round(rate.half, 5),
            "environments": len(self.by_environment),
            "plays": self.plays,
            "faults": self.faults,
            "by_family": {name: round(share, 4) for name, share in self.by_family().items()},
        }


@dataclass
class _Episode:
    """One play on its way. `reward` stays None after a fault."""

    environment: FrozenEnvironment
    play: int
    handle: EpisodeHandle | None = None
    dialogue: Dialogue | None = None
    rewards: list[float] = field(default_factory=list)
    over: bool = False
    reward: float | None = None

    def end(self, *, terminated: bool) -> None:
        self.over, self.reward = True, outcome_reward(self.rewards, terminated=terminated)

    def fault(self) -> None:
        self.over = True


class Evaluator:
    """A policy and a sandbox that play sets of programs."""

    def __init__(self, policy: Policy, pool: EnvironmentPool, config: RunConfig) -> None:
        """`config`: the agent's limits and temperature, and the prompts."""
        self._policy, self._pool, self._config = policy, pool, config
        self._prompts = prompt_set(config.prompts)

    @classmethod
    @contextmanager
    def of_model(cls, model: Path, config: RunConfig) -> Iterator[Evaluator]:
        """An evaluator of a model directory, closed at the end. Raises `UserError`, `InfrastructureError`."""
        with ExitStack() as stack:
            pool = open_pool(config)
            stack.callback(pool.close)
            policy = cls._policy_of(model, config)
            stack.callback(policy.sampler.close)
            yield cls(policy, pool, config)

    @staticmethod
    def _policy_of(model: Path, config: RunConfig) -> Policy:
        chat = ChatFormat(load_tokenizer(model), template_options={"enable_thinking": config.model.thinking})
        sampler = open_sampler(
            model,
            dtype=config.model.dtype,
            device=config.engine.device,
            threads=config.engine.threads or 1,
            context_tokens=config.model.context_tokens,
            max_batch=config.engine.sampler_batch,
        )
        return Policy(sampler, chat, thinking=config.model.thinking)

    def play(self, programs: EvaluationSet, *, plays: int) -> Score:
        """Play every program `plays` times, in lock-step rounds."""
        episodes = [_Episode(environment, play) for environment in programs.environments for play in range(plays)]
        self._open(episodes)
        for turn in range(self._config.agent.max_turns):
            live = [episode for episode in episodes if not episode.over]
            if not live:
                break
            self._round(live, turn)
        for episode in episodes:
            if not episode.over:
                episode.end(terminated=False)
        for environment in programs.environments:
            self._pool.retire(environment.id)
        return _score(episodes)

    def _open(self, episodes: Sequence[_Episode]) -> None:
        requests = [
            (e.environment.id, e.environment.code, stable_seed(EVALUATION_SEED, e.environment.id, e.play))
            for e in episodes
        ]
        opened = self._pool.reset_many(requests, max_turns=self._config.agent.max_turns)
        for episode, answer in zip(episodes, opened, strict=True):
            if isinstance(answer, Opened):
                episode.handle = answer.episode
                episode.dialogue = self._policy.converse(self._prompts.play(observation=answer.observation))
            else:
                episode.fault()

    def _round(self, live: Sequence[_Episode], turn: int) -> None:
        asked: list[tuple[_Episode, Dialogue, SampleRequest]] = []
        for episode in live:
            assert episode.dialogue is not None, "only opened episodes are played"
            request = self._request(episode, episode.dialogue, turn)
            if request is None:
                episode.end(terminated=False)
            else:
                asked.append((episode, episode.dialogue, request))
        replies = self._policy.generate([request for _, _, request in asked])
        moves: list[tuple[_Episode, Dialogue, EpisodeHandle, str]] = []
        for (episode, dialogue, _), reply in zip(asked, replies, strict=True):
            if not isinstance(reply, Sampled):
                episode.fault()
                continue
            text = dialogue.append_reply(reply)
            if reply.finish != "stop":
                episode.end(terminated=False)
            elif episode.handle is not None:
                moves.append((episode, dialogue, episode.handle, action_of(text)))
        answers = self._pool.step_many([(handle, action) for _, _, handle, action in moves])
        for (episode, dialogue, _, _), answer in zip(moves, answers, strict=True):
            if not isinstance(answer, Stepped):
                episode.fault()
                continue
            episode.rewards.append(answer.reward)
            if answer.terminated or answer.truncated:
                episode.end(terminated=answer.terminated)
            else:
                dialogue.append_observation(answer.observation)
        self._pool.end_many([e.handle for e in live if e.over and e.handle is not None])

    def _request(self, episode: _Episode, dialogue: Dialogue, turn: int) -> SampleRequest | None:
        agent, prompt = self._config.agent, dialogue.context_ids
        room = self._policy.room(len(prompt), max_tokens=agent.max_tokens)
        if not room:
            return None
        seed = stable_seed(EVALUATION_SEED, "agent", episode.environment.id, episode.play, turn)
        return self._policy.request(prompt, max_tokens=room, temperature=agent.temperature, seed=seed)


def _score(episodes: Sequence[_Episode]) -> Score:
    won: dict[str, list[float]] = {}
    for episode in episodes:
        if episode.reward is not None:
            won.setdefault(episode.environment.id, []).append(float(episode.reward > 0))
    shares = {identifier: sum(results) / len(results) for identifier, results in won.items()}
    return Score(
        plays=sum(map(len, won.values())), faults=sum(e.reward is None for e in episodes), by_environment=shares
    )
