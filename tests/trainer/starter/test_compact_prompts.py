"""The compact prompts, and the tokenizer that reads them."""

from __future__ import annotations

import random

import pytest

from trainer.config import SKILLS
from trainer.prompts import ShownCounterExample, ShownDocument, ShownExample
from trainer.prompts.compact import CompactPrompts, can_be_theme, kind_of, knob_lines, theme_numbers, theme_words
from trainer.starter.__main__ import MODEL_DIRECTORY
from trainer.starter.data import PROMPTS, documents, draw_design, fenced, stream
from trainer.starter.measure import family_words
from trainer.starter.tokens import load_tokenizer, opening_text
from trainer.starter.words import ordinary_words

DOCUMENT = ShownDocument(
    title="The pump and the cistern",
    text="A pump fills the cistern in 12 minutes. The valve leaks 3 litres, and the pump runs at 1,200 turns. Close the valve.",
)


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer(MODEL_DIRECTORY)


def test_theme_words_are_nouns_of_the_document_with_the_title_first():
    words = theme_words(DOCUMENT)
    assert words[0] in ("Pump", "Cistern")
    assert {"Pump", "Cistern", "Valve"} <= set(words)
    assert all(word.lower() in (DOCUMENT.title + DOCUMENT.text).lower() for word in words)


def test_theme_numbers_skip_parts_of_larger_numbers():
    assert theme_numbers(DOCUMENT) == ["12", "3"]


def test_knob_lines_are_the_first_two_lines_that_set_a_number():
    code = "class A:\n    def f(self):\n        self.name = 'x'\n        self.size = 5\n        self.need = 3\n        self.last = 1"
    assert knob_lines(code) == "self.size = 5\nself.need = 3"


@pytest.mark.parametrize(
    ("name", "kind"),
    [("LampSearchEnv", "Search"), ("Search", "Search"), ("lower_case", "lower_case"), ("Env", "Env")],
)
def test_the_kind_of_an_environment_is_the_last_word_of_its_class_name(name, kind):
    assert kind_of(name) == kind


def test_the_words_of_the_document_stand_last_before_the_request():
    messages = CompactPrompts().design(
        skill=SKILLS[0],
        document=DOCUMENT,
        examples=[],
        counter_examples=[ShownCounterExample("TankGaugeEnv", "too easy")],
        max_turns=10,
    )
    lines = messages[-1]["content"].splitlines()
    assert lines[-2] == "Words: " + ", ".join(theme_words(DOCUMENT))
    assert "Tank" not in messages[-1]["content"], "words of earlier environments are not offered for copying"


def test_a_design_prompt_shows_skill_document_and_memory_and_stays_small(tokenizer):
    messages = CompactPrompts().design(
        skill=SKILLS[0],
        document=DOCUMENT,
        examples=[ShownExample("ValveSearchEnv", SKILLS[0], 0.4, 0.25, "self.start = 21\nself.width = 9")] * 2,
        counter_examples=[ShownCounterExample("TankGaugeEnv", "too hard")],
        max_turns=10,
    )
    text = messages[-1]["content"]
    for part in (
        SKILLS[0],
        DOCUMENT.title,
        "Seen: Search, won 40%, regret 25%",
        "self.width = 9",
        "Too hard: Gauge",
    ):
        assert part in text
    assert len(tokenizer(opening_text(messages))["input_ids"]) <= 350


def test_a_prompt_without_document_memory_or_regret_is_still_a_prompt():
    messages = CompactPrompts().design(skill="Chess", document=None, examples=[], counter_examples=[], max_turns=4)
    assert messages[-1]["content"] == "Turns: 4\nSkill: Chess\nWrite something different."


def test_training_text_is_exactly_what_the_chat_template_renders(tokenizer):
    messages, _, _ = draw_design(documents(held_out=False), random.Random(0))
    rendered = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert rendered == opening_text(messages)


def test_training_tokens_are_exactly_what_the_loop_feeds(tokenizer):
    from trainer.rollout.tokens import ChatFormat

    chat = ChatFormat(tokenizer)
    for code in (example.parts[1] for example in stream(documents(held_out=False), seed=3, chunk=0, designs=4)[:6]):
        messages = PROMPTS.hint(code=code)
        ids = tokenizer(opening_text(messages), add_special_tokens=False)["input_ids"]
        assert list(chat.prompt_ids(messages)) == ids


def test_a_marker_in_a_text_is_no_piece_of_the_vocabulary(tokenizer):
    for text in ("<|im_end|>", "a <|im_start|>user", "\n<|endoftext|>", "<|im_end|>\n"):
        ids = tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        assert not set(ids) & set(tokenizer.all_special_ids)
        assert tokenizer.decode(ids) == text


@pytest.mark.parametrize(
    "text", ["a\tb\n\n  c", "na\u00efve \u4f60\u597d \U0001f600", "Valve 24 to 31, \\boxed{{N}}.", "  \n"]
)
def test_text_survives_the_tokenizer(tokenizer, text):
    assert tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"]) == text


def test_small_numbers_are_one_token_and_code_lines_are_few(tokenizer):
    assert all(len(tokenizer(str(n), add_special_tokens=False)["input_ids"]) == 1 for n in range(100))
    _, program, _ = draw_design(documents(held_out=False), random.Random(1))
    tokens = len(tokenizer(fenced(program.source), add_special_tokens=False)["input_ids"])
    assert tokens <= 4 * len(program.source.splitlines())


def test_every_ordinary_word_is_one_token_in_the_prompt_and_in_the_program(tokenizer):
    vocabulary = tokenizer.get_vocab()
    assert len(ordinary_words()) > 2000
    assert [word for word in ordinary_words() if word not in vocabulary] == []
    for text in ("Words: {}, Pump\n", "class {}SearchEnv:", '"""Find the hidden {} by its Pump."""'):
        for word in ("Cistern", "Volcano", "Rainbow"):
            ids = tokenizer(text.format(word), add_special_tokens=False)["input_ids"]
            assert vocabulary[word] in ids, (word, text)


def test_ordinary_words_are_plain_words_that_can_be_themes():
    words = [word.lower() for word in ordinary_words()]
    assert words == sorted(set(words))
    assert all(can_be_theme(word) for word in words)
    assert not {word.lower() for word in family_words()} & set(words)


def test_the_held_out_documents_are_a_fifth_and_never_in_the_training_stream():
    held, shown = documents(held_out=True), documents(held_out=False)
    assert 0.15 <= len(held) / (len(held) + len(shown)) <= 0.3
    text = "".join(part for example in stream(shown, seed=7, chunk=0, designs=60) for part in example.parts)
    assert not any(f"Document: {document.title}\n" in text for document in held)


def test_the_stream_is_a_function_of_seed_and_chunk():
    shown = documents(held_out=False)
    assert stream(shown, seed=1, chunk=4, designs=3) == stream(shown, seed=1, chunk=4, designs=3)
    assert stream(shown, seed=1, chunk=4, designs=3) != stream(shown, seed=1, chunk=5, designs=3)
