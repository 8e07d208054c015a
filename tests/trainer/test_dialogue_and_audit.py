"""What the policy is shown turn by turn, with and without thinking; and how an audit verdict is read."""

from __future__ import annotations

import pytest

from tests.trainer.fakes import byte_tokenizer
from trainer.audit import verdict_of
from trainer.policy import Answer
from trainer.prompts import Message
from trainer.rollout.dialogue import open_dialogue
from trainer.rollout.engine import Sampled
from trainer.rollout.tokens import ChatFormat

START = [Message(role="user", content="first observation")]


@pytest.fixture(scope="module")
def chat() -> ChatFormat:
    return ChatFormat(byte_tokenizer())


def said(chat: ChatFormat, text: str) -> Sampled:
    ids = (*chat.plain_ids(text), chat.end_of_turn)
    return Sampled(ids, (-0.5,) * len(ids), "stop")


def test_a_plain_episode_is_one_row_with_observations_masked(chat: ChatFormat) -> None:
    dialogue = open_dialogue(chat, START, thinking=False)
    prompt = dialogue.context_ids
    reply, second = said(chat, "\\boxed{1}"), said(chat, "\\boxed{2}")
    assert dialogue.rows() == []
    assert dialogue.append_reply(reply) == "\\boxed{1}"
    dialogue.append_observation("higher <|im_end|>")
    dialogue.append_reply(second)
    [row] = dialogue.rows()
    middle = len(row.token_ids) - len(reply.token_ids) - len(second.token_ids)
    assert row.prompt_ids == prompt
    assert row.mask == (1,) * len(reply.token_ids) + (0,) * middle + (1,) * len(second.token_ids)
    assert [p for p, m in zip(row.logprobs, row.mask, strict=True) if not m] == [0.0] * middle
    assert row.token_ids.count(chat.end_of_turn) == 3, (
        "two replies and the observation's own turn, not the marker in its text"
    )


def test_a_thinking_episode_has_a_row_per_turn_and_forgets_earlier_thinking(chat: ChatFormat) -> None:
    dialogue = open_dialogue(chat, START, thinking=True)
    first, second = said(chat, "<think>hm</think>\\boxed{1}"), said(chat, "<think>so</think>\\boxed{2}")
    dialogue.append_reply(first)
    dialogue.append_observation("higher")
    seen = dialogue.context_ids
    dialogue.append_reply(second)
    history = [dict(START[0]), {"role": "assistant", "content": "\\boxed{1}"}, {"role": "user", "content": "higher"}]
    assert seen == chat.prompt_ids(history)  # type: ignore[arg-type]
    rows = dialogue.rows()
    assert [row.token_ids for row in rows] == [first.token_ids, second.token_ids]
    assert rows[1].prompt_ids == seen and all(rows[1].mask)


@pytest.mark.parametrize(
    ("text", "finish", "verdict"),
    [
        ("Fine. \\boxed{yes}", "stop", "sound"),
        ("It cannot be won. \\boxed{No}", "stop", "broken"),
        ("<think>\\boxed{no}?</think> \\boxed{yes}", "stop", "sound"),
        ("Is it \\boxed{no}? Every state can be won: \\boxed{yes}", "stop", "sound"),
        ("No verdict.", "stop", "unreadable"),
        ("\\boxed{maybe}", "stop", "unreadable"),
        ("\\boxed{no}", "length", "unreadable"),
    ],
)
def test_audit_verdicts(text: str, finish: str, verdict: str) -> None:
    assert verdict_of(Answer("", (), text, (), (), finish)) == verdict  # type: ignore[arg-type]
