"""One checkpoint, opened to be tried: its weights in the built-in sampler, the run's prompts, and the sandbox once something is played."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainer.config import RunConfig
from trainer.creation import read_config
from trainer.errors import UserError
from trainer.events import EpisodeFinished
from trainer.fixed_pool import FrozenEnvironment, pool_path, read_environments
from trainer.fork import choose_checkpoint
from trainer.policy import RESERVED_TOKENS, Policy, Question
from trainer.prompts import Message, PromptSet
from trainer.prompts.sets import prompt_set
from trainer.rollout.open import open_sampler
from trainer.rollout.play import Episode, play_one
from trainer.rollout.pool import EnvironmentPool
from trainer.rollout.tokens import ChatFormat, without_thinking
from trainer.run import open_pool
from trainer.rundir import RunDirectory
from trainer.state import Environment
from trainer.trying.protocol import Chat, ChatMessage, Play
from trainer.weights import load_tokenizer, resolve_model_path

LISTED = 1000
"""Ids of a pool's programs that `ready` names at most."""

_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


@dataclass
class Tried:
    """The opened checkpoint."""

    run: RunDirectory
    name: str
    config: RunConfig
    policy: Policy
    prompts: PromptSet
    engine: dict[str, Any]
    programs: dict[str, FrozenEnvironment] | None = None  # what is played instead of the run's environments, by id
    _pool: EnvironmentPool | None = field(default=None, repr=False)

    @property
    def pool(self) -> EnvironmentPool:
        """The sandbox, opened when it is first needed. Raises `InfrastructureError` when this machine cannot isolate."""
        if self._pool is None:
            self._pool = open_pool(self.config)
        return self._pool

    def facts(self) -> dict[str, Any]:
        """What somebody who tries the checkpoint needs to know about it."""
        programs = (
            {} if self.programs is None else {"programs": len(self.programs), "environments": [*self.programs][:LISTED]}
        )
        return {
            **programs,
            "checkpoint": self.name,
            "prompts": self.config.prompts,
            "thinking": self.config.model.thinking,
            "engine": self.engine,
            "context_tokens": self.policy.context_tokens,
            "reply_tokens": self.policy.context_tokens - RESERVED_TOKENS - 1,
            "temperature": self.config.agent.temperature,
            "max_turns": self.config.agent.max_turns,
            "turn_tokens": self.config.agent.max_tokens,
        }

    def reply(self, chat: Chat) -> dict[str, Any]:
        """The model's next message, and what it took. Raises `UserError` when the conversation fills the context."""
        agent = self.config.agent
        seed = secrets.randbelow(2**63) if chat.seed is None else chat.seed
        question = Question(
            messages=[self._shown(message) for message in chat.messages],
            max_tokens=chat.max_new_tokens or agent.max_tokens,
            temperature=chat.temperature or agent.temperature,
            seed=seed,
        )
        begun = time.monotonic()
        (answer,) = self.policy.ask([question])
        if answer.no_room:
            raise UserError(f"{answer.error}; begin a new conversation or shorten the messages")
        if answer.error:
            raise UserError(answer.error)
        return {
            "text": answer.text,
            "finish": answer.finish,
            "prompt_tokens": len(answer.prompt_ids),
            "reply_tokens": len(answer.token_ids),
            "elapsed_s": round(time.monotonic() - begun, 3),
            "seed": seed,
        }

    def play(self, request: Play, watch: Callable[[Episode], None]) -> tuple[EpisodeFinished, str]:
        """Play one episode as a rollout would; returns it with the isolation it ran in. Raises `UserError`, `InfrastructureError`."""
        environment = self._environment(request)
        if request.arm == "hinted" and not environment.hint:
            raise UserError(f"{environment.key} has no hint, so it is only played unhinted")
        pool = self.pool
        try:
            episode = Episode(environment, request.arm, 0, request.play, request.seed)
            return play_one(self, episode, watch), pool.tier
        finally:
            pool.retire(environment.key)

    def close(self) -> None:
        """End the sandbox and free the caches."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None
        self.policy.sampler.close()

    def _shown(self, message: ChatMessage) -> Message:
        """A message as the model is shown it: a thinking model does not see its earlier thinking again."""
        is_thought = self.config.model.thinking and message.role == "assistant"
        return Message(role=message.role, content=without_thinking(message.content) if is_thought else message.content)

    def _environment(self, request: Play) -> Environment:
        code, hint = request.code, request.hint
        if code is None and self.programs is not None:
            found = self.programs.get(request.environment)
            if found is None:
                some = ", ".join([*self.programs][:3])
                raise UserError(f"the pool has no environment {request.environment!r}; it has {some} …")
            code, hint = found.code, found.hint
        elif code is None:
            if not _KEY.fullmatch(request.environment):
                raise UserError(f"environment: {request.environment!r} is no key of an environment, such as r0004-s03")
            folder = self.run.environment(request.environment)
            try:
                code = (folder / "code.py").read_text(encoding="utf-8")
                hint = (folder / "hint.txt").read_text(encoding="utf-8") if (folder / "hint.txt").is_file() else None
            except OSError as error:
                raise UserError(
                    f"{self.run.root} has no environment {request.environment}; its environments/ lists them"
                ) from error
        return Environment(
            key=request.environment, candidate="", slot=0, skill="", class_name="", code=code, document=None,
            hint_state="ok" if hint else "none", hint=hint or None,
        )  # fmt: skip


def open_checkpoint(directory: Path, *, checkpoint: str, device: str, threads: int) -> Tried:
    """Load a checkpoint of the run in `directory`: its number, `best`, or `latest`.

    `device` "" is the run's own engine.device. Raises `UserError` when there is no such checkpoint, or it is damaged or no model.
    """
    run = RunDirectory(directory)
    config = read_config(run)
    chosen = choose_checkpoint(run, checkpoint, best_metric=config.checkpoint.best_metric)
    model = resolve_model_path(str(chosen / "model"))
    chat = ChatFormat(load_tokenizer(model), template_options={"enable_thinking": config.model.thinking})
    sampler = open_sampler(
        model,
        dtype=config.model.dtype,
        device=device or config.engine.device,
        threads=threads,
        context_tokens=config.model.context_tokens,
        max_batch=1,
    )
    return Tried(
        run=run,
        name=chosen.name,
        config=config,
        policy=Policy(sampler, chat, thinking=config.model.thinking),
        prompts=prompt_set(config.prompts),
        engine=dict(sampler.describe()),
    )


def read_programs(path: str) -> dict[str, FrozenEnvironment]:
    """The programs of a pool by their id: a JSONL file, a folder of such files, an unpacked pool, or a built-in one. Raises `UserError`."""
    try:
        found = {one.id: one for one in read_environments(pool_path(path), path)}
    except UserError as error:
        raise UserError(str(error).replace("pool.path", "--pool", 1)) from error
    if not found:
        raise UserError(f"--pool: {path} holds no environment")
    return found
