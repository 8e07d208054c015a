"""One episode's talk with the policy, for models that think aloud and models that do not.

A plain model's episode is one training row: everything said stays in the context (`Conversation`). A thinking model's earlier thinking is
dropped when the history is rendered, so what it saw differs from turn to turn and every turn is a row of its own (spec 6).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from trainer.prompts import Message
from trainer.rollout.engine import Sampled
from trainer.rollout.tokens import ChatFormat, Conversation, without_thinking


@dataclass(frozen=True, slots=True)
class Row:
    """Tokens of one training row; `token_ids`, `mask` and `logprobs` have length T."""

    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    mask: tuple[int, ...]
    logprobs: tuple[float, ...]


class Dialogue(Protocol):
    """What the episode driver needs."""

    @property
    def context_ids(self) -> tuple[int, ...]:
        """Prompt of the next generation."""

    def append_reply(self, reply: Sampled) -> str:
        """Keep a reply as sampled; returns its text."""

    def append_observation(self, text: str) -> None:
        """Keep what the environment answered."""

    def rows(self) -> list[Row]:
        """The episode as training rows."""


class PlainDialogue:
    """One row per episode."""

    def __init__(self, chat: ChatFormat, messages: Sequence[Message]) -> None:
        self._conversation = Conversation.start(chat, as_mappings(messages))

    @property
    def context_ids(self) -> tuple[int, ...]:
        return self._conversation.context_ids

    def append_reply(self, reply: Sampled) -> str:
        return self._conversation.append_reply(reply)

    def append_observation(self, text: str) -> None:
        self._conversation.append_observation(text)

    def rows(self) -> list[Row]:
        c = self._conversation
        return [Row(c.prompt_ids, tuple(c.token_ids), tuple(c.mask), tuple(c.logprobs))] if c.token_ids else []


@dataclass
class ThinkingDialogue:
    """One row per turn: the prompt as rendered then, the turn's tokens with mask 1."""

    chat: ChatFormat
    messages: list[dict[str, str]]
    turns: list[Row] = field(default_factory=list)

    @property
    def context_ids(self) -> tuple[int, ...]:
        return self.chat.prompt_ids(self.messages)

    def append_reply(self, reply: Sampled) -> str:
        prompt, count = self.context_ids, len(reply.token_ids)
        self.turns.append(Row(prompt, reply.token_ids, (1,) * count, reply.logprobs))
        text = self.chat.reply_text(reply.token_ids)
        self.messages.append({"role": "assistant", "content": without_thinking(text)})
        return text

    def append_observation(self, text: str) -> None:
        self.messages.append({"role": "user", "content": text})

    def rows(self) -> list[Row]:
        return list(self.turns)


def open_dialogue(chat: ChatFormat, messages: Sequence[Message], *, thinking: bool) -> Dialogue:
    """A dialogue that starts with these messages; the policy speaks next."""
    if thinking:
        return ThinkingDialogue(chat, as_mappings(messages))
    return PlainDialogue(chat, messages)


def as_mappings(messages: Sequence[Message]) -> list[dict[str, str]]:
    """Messages as the plain dictionaries a chat template takes."""
    return [{"role": m["role"], "content": m["content"]} for m in messages]
