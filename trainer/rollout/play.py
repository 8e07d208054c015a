"""The episode driver: both arms of all environments in lock-step rounds (spec 6).

A round samples one reply for every live episode in one sampler batch, then steps them all in one sandbox batch. The first unhinted
play of each environment is its canary: the other plays of that environment start when it has ended. Episodes are kept and reported
in a fixed order (environment, arm, play), so nothing depends on timing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sandbox import EnvironmentFault, EpisodeHandle, HostError, Opened, Stepped
from trainer.agent import action_of
from trainer.config import RunConfig
from trainer.errors import InfrastructureError
from trainer.events import FAULTS, Arm, EpisodeFinished, EpisodeStatus, Turn
from trainer.learn.advantage import outcome_reward
from trainer.policy import Policy
from trainer.prompts import PromptSet
from trainer.rollout.dialogue import Dialogue, Row
from trainer.rollout.engine import Sampled, SampleRequest, SamplerError
from trainer.rollout.pool import EnvironmentPool
from trainer.seeds import episode_seed, stable_seed
from trainer.session import Session
from trainer.state import Environment

FAULTY_SHARE = 0.25
"""Share of faulted unhinted episodes of a rollout from which an environment counts as faulty (spec 6)."""


class Table(Protocol):
    """What a turn needs, wherever it is played: the settings, who speaks, the environments and the prompts. A `Session` is one."""

    @property
    def config(self) -> RunConfig: ...

    @property
    def policy(self) -> Policy: ...

    @property
    def pool(self) -> EnvironmentPool: ...

    @property
    def prompts(self) -> PromptSet: ...


@dataclass
class Episode:
    """One play as it goes. `dialogue` is None until the environment answered `reset`."""

    environment: Environment
    arm: Arm
    offset: int
    play: int
    seed: int
    handle: EpisodeHandle | None = None
    dialogue: Dialogue | None = None
    prompt_tokens: int = 0
    known_tokens: int = 0
    observation: str = ""
    turns: list[Turn] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    status: EpisodeStatus | None = None
    fault: str = ""
    started: float = 0.0

    @property
    def key(self) -> str:
        return f"{self.environment.key}/o{self.offset}/{self.arm[0]}/{self.play:02d}"

    def rows(self) -> list[Row]:
        """What was said, as training rows; none before the first reply."""
        return self.dialogue.rows() if self.dialogue is not None else []

    @property
    def reward(self) -> float | None:
        """Outcome reward; None for faults (spec 6)."""
        if self.status is None or self.status in FAULTS:
            return None
        return outcome_reward(self.rewards, terminated=self.status in ("won", "lost"))


@dataclass
class _Group:
    """The plays of one environment: the canary first, the others held back until it has ended."""

    environment: Environment
    canary: Episode
    others: list[Episode]
    released: bool = False
    hung: str = ""


def play_rollout(session: Session, environments: Sequence[Environment], offset: int) -> list[Episode]:
    """Play all episodes of a rollout and report each as it ends; returns those that were started, in order.

    Environments that hang are barred at once: their other episodes end as `env_timeout` without reward.
    """
    groups = [_group(session, environment, offset) for environment in environments]
    episodes = [e for g in groups for e in (g.canary, *g.others)]
    with session.meter.running("play", total=len(episodes)):
        live: list[Episode] = []
        done = 0
        while True:
            session.control.safe_point()
            live = sorted([*live, *_start_due(session, groups)], key=_order)
            live, withdrawn = _without_quarantined(session, live)
            live, ended = _settle(session, groups, live)
            done += withdrawn + ended
            if not live and not any(_is_due(g) for g in groups):
                break
            _round(session, live)
            live, ended = _settle(session, groups, live)
            done += ended
            session.meter.advance("play", done)
    session.meter.finish("play")
    started = [e for e in episodes if e.status is not None and e.environment.key not in session.state.quarantined]
    _refuse_broken_machinery(started)
    return started


def play_one(table: Table, episode: Episode, watch: Callable[[Episode], None]) -> EpisodeFinished:
    """Play one episode outside of any rollout, turn for turn as in one; nothing is logged or trained.

    `watch` is called with the episode when it has opened and after each of its turns.
    """
    _start(table, [episode])
    watch(episode)
    while episode.status is None:
        _round(table, [episode])
        watch(episode)
    return _finished(episode)


def bar_faulty(session: Session, episodes: Sequence[Episode]) -> None:
    """Bar environments in which too many unhinted episodes of this rollout were the generated program's fault."""
    for environment in session.state.playable():
        mine = [e for e in episodes if e.environment.key == environment.key and e.arm == "unhinted"]
        faulted = [e for e in mine if e.status in ("env_error", "env_timeout")]
        if mine and len(faulted) >= FAULTY_SHARE * len(mine):
            session.bar(environment.key, f"{len(faulted)} of {len(mine)} unhinted episodes failed: {faulted[0].fault}")


def _group(session: Session, environment: Environment, offset: int) -> _Group:
    schedule, seed = session.config.schedule, session.config.seed

    def episode(arm: Arm, play: int) -> Episode:
        return Episode(environment, arm, offset, play, episode_seed(seed, environment.key, offset, play))

    others = [episode("unhinted", play) for play in range(1, schedule.plays)]
    if offset == 0 and environment.hint:
        others += [episode("hinted", play) for play in range(schedule.hinted_plays)]
    return _Group(environment, episode("unhinted", 0), others)


def _order(episode: Episode) -> tuple[int, str, int]:
    return episode.environment.slot, "" if episode.arm == "unhinted" else "h", episode.play


def _is_due(group: _Group) -> bool:
    """Whether the rest of a group can start: its canary has ended and did not hang."""
    return not group.released and group.canary.status is not None and not group.hung


def _start_due(session: Session, groups: Sequence[_Group]) -> list[Episode]:
    """Reset the canaries in the first round, later the groups whose canary has ended."""
    due: list[Episode] = []
    for group in groups:
        if group.canary.started == 0.0:
            due.append(group.canary)
        elif _is_due(group):
            group.released = True
            if not session.state.is_out(group.environment.key):
                due += group.others
    if due:
        _start(session, due)
    return due


def _start(table: Table, due: Sequence[Episode]) -> None:
    now = time.monotonic()
    requests = [(e.environment.key, e.environment.code, e.seed) for e in due]
    opened = table.pool.reset_many(requests, max_turns=table.config.agent.max_turns)
    for episode, answer in zip(due, opened, strict=True):
        episode.started = now
        _open(table, episode, answer)


def _open(table: Table, episode: Episode, answer: Opened | EnvironmentFault | HostError) -> None:
    if not isinstance(answer, Opened):
        _fault(episode, answer)
        return
    episode.handle = answer.episode
    episode.observation = answer.observation
    if episode.arm == "hinted":
        episode.observation = table.prompts.inject_hint(
            observation=answer.observation, hint=episode.environment.hint or ""
        )
    messages = table.prompts.play(observation=episode.observation)
    episode.dialogue = table.policy.converse(messages)
    episode.prompt_tokens = len(episode.dialogue.context_ids)


def _round(table: Table, live: Sequence[Episode]) -> None:
    """One turn of every live episode; sets the status of those that end."""
    requests: list[tuple[Episode, SampleRequest]] = []
    for episode in live:
        request = _request(table, episode)
        if request is None:
            episode.status = "context_full"
        else:
            requests.append((episode, request))
    replies = table.policy.generate([request for _, request in requests])
    moves: list[tuple[Episode, EpisodeHandle, str]] = []
    for (episode, _), reply in zip(requests, replies, strict=True):
        action = _take_reply(table, episode, reply)
        if action is not None and episode.handle is not None:
            moves.append((episode, episode.handle, action))
    stepped = table.pool.step_many([(handle, action) for _, handle, action in moves])
    for (episode, _, _), answer in zip(moves, stepped, strict=True):
        _take_step(table, episode, answer)
    table.pool.end_many([e.handle for e in live if e.status is not None and e.handle is not None])


def _request(table: Table, episode: Episode) -> SampleRequest | None:
    """The next generation, None when the context is full."""
    assert episode.dialogue is not None, "only opened episodes are played"
    agent = table.config.agent
    prompt = episode.dialogue.context_ids
    room = table.policy.room(len(prompt), max_tokens=agent.max_tokens)
    if not room:
        return None
    seed = stable_seed(
        table.config.seed,
        "agent",
        episode.environment.key,
        episode.offset,
        episode.arm,
        episode.play,
        len(episode.turns),
    )
    return table.policy.request(prompt, max_tokens=room, temperature=agent.temperature, seed=seed)


def _take_reply(table: Table, episode: Episode, reply: Sampled | SamplerError) -> str | None:
    """Keep the reply; the action for the environment, or None when the episode ended with it."""
    assert episode.dialogue is not None, "only opened episodes are played"
    if isinstance(reply, SamplerError):
        episode.status, episode.fault = "sampler_error", str(reply)
        return None
    shown_tokens = len(episode.dialogue.context_ids)
    text = episode.dialogue.append_reply(reply)
    action = action_of(text) if reply.finish == "stop" else None
    episode.turns.append(
        Turn(
            observation=episode.observation,
            reply=text,
            action=action,
            reward=None,
            observation_tokens=max(0, shown_tokens - episode.known_tokens),
            reply_tokens=len(reply.token_ids),
            logprob_mean=sum(reply.logprobs) / len(reply.logprobs) if reply.logprobs else None,
        )
    )
    episode.known_tokens = shown_tokens + len(reply.token_ids)
    if action is None:
        episode.status = "length"
    return action


def _take_step(table: Table, episode: Episode, answer: Stepped | EnvironmentFault | HostError) -> None:
    assert episode.dialogue is not None, "only opened episodes are played"
    if not isinstance(answer, Stepped):
        _fault(episode, answer)
        return
    episode.rewards.append(answer.reward)
    episode.turns[-1] = episode.turns[-1].model_copy(
        update={
            "reward": answer.reward,
            "terminated": answer.terminated,
            "truncated": answer.truncated,
            "info": dict(answer.info),
        }
    )
    episode.observation = answer.observation
    if answer.terminated:
        episode.status = "won" if answer.reward > 0 else "lost"
    elif answer.truncated:
        episode.status = "truncated_by_env"
    elif len(episode.turns) >= table.config.agent.max_turns:
        episode.status = "turn_limit"
    else:
        episode.dialogue.append_observation(answer.observation)


def _fault(episode: Episode, fault: EnvironmentFault | HostError) -> None:
    """A fault is nobody's reward: the generated program's, or the sandbox's own."""
    episode.fault = str(fault)[:2000]
    if isinstance(fault, HostError):
        episode.status = "sandbox_error"
    else:
        episode.status = "env_timeout" if fault.kind == "timeout" else "env_error"


def _settle(session: Session, groups: Sequence[_Group], live: Sequence[Episode]) -> tuple[list[Episode], int]:
    """Stop the environments that hung, report what has ended; returns the episodes that go on and the number reported."""
    for group in groups:
        culprit = next((e for e in (group.canary, *group.others) if e.status == "env_timeout"), None)
        if culprit is None or group.hung:
            continue
        group.hung = f"not finished: the environment hung in {culprit.key}"
        session.bar(group.environment.key, f"hung: {culprit.fault}")
        stopped = [e for e in live if e.environment.key == group.environment.key and e.status is None]
        for episode in stopped:
            episode.status, episode.fault = "env_timeout", group.hung
        session.pool.end_many([e.handle for e in stopped if e.handle is not None])
    return [e for e in live if e.status is None], _report(session, [e for e in live if e.status is not None])


def _refuse_broken_machinery(episodes: Sequence[Episode]) -> None:
    """A rollout in which the sandbox or the sampler failed every time has nothing to train on. Raises `InfrastructureError`."""
    broken = [e for e in episodes if e.status in ("sandbox_error", "sampler_error")]
    if episodes and len(broken) == len(episodes):
        raise InfrastructureError(
            f"all {len(episodes)} episodes of the rollout failed: {broken[0].status}: {broken[0].fault}"
        )


def _without_quarantined(session: Session, live: Sequence[Episode]) -> tuple[list[Episode], int]:
    """Episodes of environments a person has just withdrawn are given up without a result."""
    kept = [e for e in live if e.environment.key not in session.state.quarantined]
    gone = [e for e in live if e.environment.key in session.state.quarantined]
    session.pool.end_many([e.handle for e in gone if e.handle is not None])
    return kept, len(gone)


def _report(session: Session, ended: Sequence[Episode]) -> int:
    """One event and one tensor sample per ended episode; returns how many."""
    for episode in ended:
        event = _finished(episode)
        session.log.emit(event)
        session.record.episodes.append(event)
        rows = episode.rows()
        for number, row in enumerate(rows):
            session.tensors.add(
                episode.key if len(rows) == 1 else f"{episode.key}/{number}",
                "agent",
                arm=episode.arm,
                prompt_ids=row.prompt_ids,
                token_ids=row.token_ids,
                mask=row.mask,
                logprobs=row.logprobs,
            )
    return len(ended)


def _finished(episode: Episode) -> EpisodeFinished:
    rows = episode.rows()
    sampled = sum(sum(row.mask) for row in rows)
    return EpisodeFinished(
        episode=episode.key,
        environment=episode.environment.key,
        arm=episode.arm,
        offset=episode.offset,
        play=episode.play,
        seed=episode.seed,
        status=episode.status or "sandbox_error",
        reward=episode.reward,
        turns=episode.turns,
        final_observation=episode.observation if episode.turns and episode.turns[-1].reward is not None else "",
        prompt_tokens=episode.prompt_tokens,
        total_tokens=max((len(row.prompt_ids) + len(row.token_ids) for row in rows), default=episode.prompt_tokens),
        trained_tokens=sampled if episode.arm == "unhinted" and episode.reward is not None else 0,
        fault=episode.fault,
        elapsed_s=round(time.monotonic() - episode.started, 4),
    )
