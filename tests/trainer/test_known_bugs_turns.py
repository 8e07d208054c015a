"""Bugs other trainers had with several turns, masks and templates (M-1 … M-14 of our survey), each tried on this one.

Two cannot occur here. M-4 (an observation is cut at its head): nothing cuts an observation on its way to the policy; the sandbox refuses
one over its limit as the environment's error, and a context without room ends the episode. M-5 (a generation that was aborted and goes
on may exceed its limit): a generation is never resumed; after a kill the whole rollout is played again.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.trainer.test_known_bugs_loss import session
from tests.trainer.tiny_model import CHATML, save_tiny_model, tiny_tokenizer
from trainer.agent import action_of
from trainer.learn.batch import build_packs
from trainer.learn.engine import TrainRow
from trainer.policy import RESERVED_TOKENS, Policy, Question
from trainer.rollout.builtin import BuiltinSampler
from trainer.rollout.dialogue import open_dialogue
from trainer.rollout.engine import Sampled, SampleRequest
from trainer.rollout.play import Episode, _request
from trainer.rollout.tokens import ChatFormat, Conversation
from trainer.state import Environment
from trainer.update import make_batch

TOKENIZER = tiny_tokenizer()
CHAT = ChatFormat(TOKENIZER)
END = CHAT.end_of_turn
MESSAGES = [{"role": "user", "content": "Guess a number."}]

# As Qwen3's: thinking in earlier assistant turns is dropped when the history is rendered.
FORGETFUL = CHATML.replace("message['content']", "message['content'].split('</think>')[-1].lstrip('\\n')")


def reply(*ids: int, end: bool = True) -> Sampled:
    ids = (*ids, END) if end else ids
    return Sampled(ids, tuple(-0.1 * (i + 1) for i in range(len(ids))), "stop" if end else "length")


def template_ids(tokenizer: Any, messages: list[dict[str, str]]) -> list[int]:
    ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True)
    return list(ids if isinstance(ids, list) else ids["input_ids"])


def three_turns() -> tuple[Conversation, list[Sampled]]:
    conversation = Conversation.start(CHAT, MESSAGES)
    said = [reply(60), reply(61, 62, 63), reply(64, 65)]
    for turn, observation in zip(said, ("higher", "a much longer observation than before", ""), strict=True):
        conversation.append_reply(turn)
        if observation:
            conversation.append_observation(observation)
    return conversation, said


def train_row(conversation: Conversation, advantage: float = 1.0) -> TrainRow:
    c = conversation
    return TrainRow("e", "agent", c.prompt_ids, tuple(c.token_ids), tuple(c.mask), tuple(c.logprobs), advantage, 1.0, 0)


def pack_of(row: TrainRow) -> Any:
    (pack,) = build_packs(
        [row], budget=10_000, rollout=0, all_count=False, dtype=torch.float64, device=torch.device("cpu")
    )
    return pack


def policy(context_tokens: int) -> Policy:
    sampler: Any = SimpleNamespace(context_tokens=context_tokens)
    return Policy(sampler, CHAT)


def test_m01_what_was_sampled_is_an_exact_prefix_of_every_later_turn() -> None:
    # "number" spelled letter by letter: decoding and encoding again would give other, fewer ids.
    spelled = [CHAT.plain_ids(letter)[0] for letter in "number"]
    assert len(CHAT.plain_ids("number")) < len(spelled)
    conversation = Conversation.start(CHAT, MESSAGES)
    for turn in range(3):
        before = conversation.context_ids
        conversation.append_reply(reply(*spelled))
        conversation.append_observation(f"observation {turn}")
        assert conversation.context_ids[: len(before) + len(spelled) + 1] == (*before, *spelled, END)


def test_m02_the_newline_after_an_end_of_turn_is_there_once_and_masked() -> None:
    conversation = Conversation.start(CHAT, MESSAGES)
    conversation.append_reply(reply(*CHAT.plain_ids("five")))
    conversation.append_observation("higher")
    said = [*MESSAGES, {"role": "assistant", "content": "five"}, {"role": "user", "content": "higher"}]
    assert list(conversation.context_ids) == template_ids(TOKENIZER, said)
    place = conversation.token_ids.index(END)
    assert conversation.token_ids[place + 1] == CHAT.plain_ids("\n")[0]
    assert conversation.mask[: place + 2] == [1] * (place + 1) + [0]


@pytest.mark.parametrize("thinking", [False, True])
def test_m03_every_sampled_token_is_trained_once(thinking: bool) -> None:
    dialogue = open_dialogue(CHAT, [{"role": "user", "content": "Guess."}], thinking=thinking)
    sampled: list[int] = []
    for turn in range(3):
        said = reply(*range(60 + 10 * turn, 63 + 11 * turn))
        dialogue.append_reply(said)
        dialogue.append_observation("higher")
        sampled += said.token_ids
    trained = [t for row in dialogue.rows() for t, bit in zip(row.token_ids, row.mask, strict=True) if bit]
    assert trained == sampled


def test_the_rows_of_one_thinking_episode_share_its_weight_and_have_its_advantage() -> None:
    def played(play: int, turns: int, reward: float) -> Episode:
        dialogue = open_dialogue(CHAT, [{"role": "user", "content": "Guess."}], thinking=True)
        for turn in range(turns):
            dialogue.append_reply(reply(60 + turn))
            dialogue.append_observation("higher")
        place = Environment("e", "", 0, "Optimization", "GameEnv", "", None)
        return Episode(
            place, "unhinted", 0, play, 0, dialogue=dialogue, rewards=[reward], status="won" if reward else "lost"
        )

    batch = make_batch(session(), [played(0, 3, 1.0), played(1, 1, 0.0)], 0)
    assert [(r.sample, r.weight) for r in batch.rows] == [("e/o0/u/00", 1 / 3)] * 3 + [("e/o0/u/01", 1.0)]
    assert [r.advantage for r in batch.rows] == pytest.approx([1.0, 1.0, 1.0, -1.0], abs=1e-7)


def test_m06_spaces_at_the_end_of_a_reply_change_neither_ids_nor_text() -> None:
    ids = CHAT.plain_ids("\\boxed{5}  \n ")
    conversation = Conversation.start(CHAT, MESSAGES)
    assert conversation.append_reply(reply(*ids)) == "\\boxed{5}  \n "
    assert tuple(conversation.token_ids) == (*ids, END)
    assert action_of("\\boxed{5}  \n ") == "\\boxed{5}"  # only the action is stripped


def test_m07_a_turn_gets_no_more_than_the_context_leaves() -> None:
    near = policy(100)
    assert near.room(30, max_tokens=50) == 100 - 30 - RESERVED_TOKENS
    assert near.room(30, max_tokens=5) == 5
    assert near.room(35, max_tokens=5) == 1
    assert near.room(36, max_tokens=5) == near.room(1000, max_tokens=5) == 0


def test_m07_the_engine_clamps_too_and_a_second_try_starts_from_the_prompt(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    sampler = BuiltinSampler.from_directory(
        save_tiny_model(tmp_path), dtype="fp32", device="cpu", threads=1, context_tokens=40, max_batch=2
    )
    request = SampleRequest(tuple(range(3, 33)), 50, 1.0, 1, ())
    first, again = sampler.generate([request])[0], sampler.generate([request])[0]
    assert isinstance(first, Sampled)
    assert isinstance(again, Sampled)
    assert len(first.token_ids) == len(first.logprobs) == 10
    assert first.token_ids == again.token_ids


def test_m08_tokens_mask_and_log_probs_have_one_length_after_every_append() -> None:
    conversation = Conversation.start(CHAT, MESSAGES)
    for turn in range(4):
        conversation.append_reply(reply(*range(60, 61 + turn)))
        assert len(conversation.token_ids) == len(conversation.mask) == len(conversation.logprobs)
        conversation.append_observation("x" * turn)
        assert len(conversation.token_ids) == len(conversation.mask) == len(conversation.logprobs)
    with pytest.raises(ValueError, match="2 tokens with 1 log-probs"):
        conversation.append_reply(Sampled((60, END), (-0.1,), "stop"))


def test_m09_the_advantage_lies_on_each_turns_own_tokens() -> None:
    conversation, said = three_turns()
    pack = pack_of(train_row(conversation, advantage=-0.5))
    assert pack.targets_N.tolist() == [t for turn in said for t in turn.token_ids]
    assert pack.sampler_logps_N.tolist() == pytest.approx([p for turn in said for p in turn.logprobs])
    assert pack.advantages_N.tolist() == [-0.5] * 9


def test_m10_an_episode_longer_than_a_turn_may_be_is_not_cut() -> None:
    # Three turns of 2, 4 and 3 tokens under a cap of 4 a turn are one row of 9 trained tokens and the observations between them.
    conversation, said = three_turns()
    cap = 4
    assert max(len(turn.token_ids) for turn in said) == cap
    row = train_row(conversation)
    assert sum(row.mask) == 9 > cap
    assert pack_of(row).pack.bounds[-1] == len(row.prompt_ids) + len(row.token_ids)


def test_m11_a_template_that_forgets_thinking_does_not_shift_what_is_trained() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = FORGETFUL
    chat = ChatFormat(tokenizer)
    text = "<think>two</think>\n\\boxed{2}"
    said = Sampled((*chat.plain_ids(text), END), (-0.1,) * (len(chat.plain_ids(text)) + 1), "stop")
    history = [
        {"role": "user", "content": "Guess."}, {"role": "assistant", "content": text},
        {"role": "user", "content": "higher"},
    ]  # fmt: skip
    thinking = open_dialogue(chat, [{"role": "user", "content": "Guess."}], thinking=True)
    plain = open_dialogue(chat, [{"role": "user", "content": "Guess."}], thinking=False)
    for dialogue in (thinking, plain):
        dialogue.append_reply(said)
        dialogue.append_observation("higher")
        dialogue.append_reply(reply(70, 71))
    # One row per turn, each beside the prompt the policy really saw: the template's own rendering.
    first, second = thinking.rows()
    assert (first.token_ids, second.token_ids) == (said.token_ids, (70, 71, END))
    assert list(second.prompt_ids) == template_ids(tokenizer, history)
    assert len(second.prompt_ids) < len(first.prompt_ids) + len(said.token_ids) + len(chat.observation_ids("higher"))
    # Without the setting nothing is rendered again, so nothing is rewritten.
    (row,) = plain.rows()
    assert row.token_ids[: len(said.token_ids)] == said.token_ids


def test_m12_the_compact_filter_asks_how_an_episode_ended_and_not_how_long_its_text_is() -> None:
    def played(play: int, status: str, text: str) -> Episode:
        dialogue = open_dialogue(CHAT, [{"role": "user", "content": "Guess."}], thinking=False)
        dialogue.append_reply(reply(*CHAT.plain_ids(text), end=status != "length"))
        place = Environment("e", "", 0, "Optimization", "GameEnv", "", None)
        return Episode(place, "unhinted", 0, play, 0, dialogue=dialogue, rewards=[1.0], status=status)  # type: ignore[arg-type]

    batch = make_batch(
        session(**{"loss.compact_filter": True}), [played(0, "won", "word " * 400), played(1, "length", "a")], 0
    )
    assert [any(row.mask) for row in batch.rows] == [True, False]
    assert batch.filtered == 1


def test_m13_no_end_of_turn_is_added_to_a_reply_that_was_cut() -> None:
    conversation = Conversation.start(CHAT, MESSAGES)
    conversation.append_reply(reply(60, 61, end=False))
    assert (conversation.token_ids, conversation.mask) == ([60, 61], [1, 1])
    assert not conversation.turn_ended
    with pytest.raises(ValueError, match="only follow a reply that ended its turn"):
        conversation.append_observation("higher")


def test_m14_a_context_that_is_full_is_a_status_of_its_own_with_the_reward_of_an_unfinished_episode() -> None:
    place = Environment("e", "", 0, "Optimization", "GameEnv", "", None)
    dialogue = open_dialogue(CHAT, [{"role": "user", "content": "Guess. " * 60}], thinking=False)
    full: Any = session()
    full.policy = policy(len(dialogue.context_ids) + RESERVED_TOKENS)
    episode = Episode(place, "unhinted", 0, 0, 0, dialogue=dialogue)
    assert _request(full, episode) is None
    full.policy = policy(len(dialogue.context_ids) + RESERVED_TOKENS + 3)
    request = _request(full, episode)
    assert request is not None
    assert request.max_new_tokens == 3
    rewards = {}
    for status in ("context_full", "sampler_error"):
        episode.status = status  # type: ignore[assignment]
        rewards[status] = episode.reward
    assert rewards == {"context_full": 0.0, "sampler_error": None}
    # A question that does not fit is answered with the reason, not with an empty reply.
    (answer,) = policy(len(dialogue.context_ids)).ask(
        [Question([{"role": "user", "content": "Guess. " * 60}], 5, 1.0, 0)]
    )
    assert answer.finish == "error"
    assert "model.context_tokens" in answer.error
