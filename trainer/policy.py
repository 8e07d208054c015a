"""The policy as the loop talks to it: single-turn questions (design, hint, audit), all of a round in one sampler batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from trainer.prompts import Message
from trainer.rollout.dialogue import Dialogue, as_mappings, open_dialogue
from trainer.rollout.engine import Sampled, Sampler, SampleRequest, SamplerError
from trainer.rollout.tokens import ChatFormat

RESERVED_TOKENS = 64
"""Context kept free; a prompt that leaves no more than this has no room for a reply (spec 6)."""


@dataclass(frozen=True, slots=True)
class Question:
    """One single-turn request; `seed` fixes what is drawn."""

    messages: Sequence[Message]
    max_tokens: int
    temperature: float
    seed: int


@dataclass(frozen=True, slots=True)
class Answer:
    """A reply with everything that produced it. `error` is "" or why there is no reply; `finish` is then "error"."""

    prompt: str
    prompt_ids: tuple[int, ...]
    text: str = ""
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    finish: Literal["stop", "length", "error"] = "error"
    error: str = ""
    no_room: bool = False  # the prompt alone fills the context


@dataclass
class SamplerUse:
    """What the sampler has cost since the counters were last taken."""

    seconds: float = 0.0
    tokens: int = 0

    def take(self) -> SamplerUse:
        """The counts so far; starts again at 0."""
        taken = SamplerUse(self.seconds, self.tokens)
        self.seconds, self.tokens = 0.0, 0
        return taken


class Policy:
    """One sampler and one tokenizer; counts what they are used for."""

    def __init__(
        self, sampler: Sampler, chat: ChatFormat, *, thinking: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.sampler = sampler
        self.thinking = thinking
        self.chat = chat
        self.use = SamplerUse()
        self._clock = clock

    @property
    def context_tokens(self) -> int:
        return self.sampler.context_tokens

    def room(self, used_tokens: int, *, max_tokens: int) -> int:
        """Tokens a reply may have after `used_tokens`; 0 when the context is full (spec 6)."""
        left = self.context_tokens - used_tokens
        return 0 if left <= RESERVED_TOKENS else min(max_tokens, left - RESERVED_TOKENS)

    def generate(self, requests: Sequence[SampleRequest]) -> list[Sampled | SamplerError]:
        """The sampler's `generate`, counted. An empty list costs nothing."""
        if not requests:
            return []
        started = self._clock()
        answers = self.sampler.generate(requests)
        self.use.seconds += self._clock() - started
        self.use.tokens += sum(len(a.token_ids) for a in answers if isinstance(a, Sampled))
        return answers

    def converse(self, messages: Sequence[Message]) -> Dialogue:
        """Token accounting of one episode that opens with these messages."""
        return open_dialogue(self.chat, messages, thinking=self.thinking)

    def request(self, prompt_ids: Sequence[int], *, max_tokens: int, temperature: float, seed: int) -> SampleRequest:
        return SampleRequest(tuple(prompt_ids), max_tokens, temperature, seed, self.chat.stop_ids)

    def ask(self, questions: Sequence[Question]) -> list[Answer]:
        """Answer all questions in one batch, in order."""
        prompts = [self.chat.prompt_ids(as_mappings(q.messages)) for q in questions]
        rooms = [self.room(len(p), max_tokens=q.max_tokens) for p, q in zip(prompts, questions, strict=True)]
        requests = [
            self.request(p, max_tokens=room, temperature=q.temperature, seed=q.seed)
            for p, q, room in zip(prompts, questions, rooms, strict=True)
            if room
        ]
        replies = iter(self.generate(requests))
        return [self._answer(p, next(replies) if room else None) for p, room in zip(prompts, rooms, strict=True)]

    def _answer(self, prompt_ids: tuple[int, ...], reply: Sampled | SamplerError | None) -> Answer:
        prompt = self.chat.reply_text(prompt_ids)
        if reply is None:
            return Answer(
                prompt,
                prompt_ids,
                error=f"the prompt of {len(prompt_ids)} tokens leaves no room for a reply in model.context_tokens "
                f"({self.context_tokens})",
                no_room=True,
            )
        if isinstance(reply, SamplerError):
            return Answer(prompt, prompt_ids, error=f"sampler: {reply}")
        text = self.chat.reply_text(reply.token_ids)
        return Answer(prompt, prompt_ids, text, reply.token_ids, reply.logprobs, reply.finish)
