"""The built-in model's tokenizer: byte-level BPE whose merges span whole code lines, ordinary words as single pieces, ChatML rendering."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from trainer.prompts import Message

MERGED_SIZE = 3072  # pieces found by merging; the ordinary words come on top
START, END, PAD = "<|im_start|>", "<|im_end|>", "<|endoftext|>"
# Capitalised words and numbers are pieces of their own wherever they stand, so a word of the document has the same tokens in the
# prompt and in the program. Everything between them on one line may merge, spaces included; nothing merges over a line's start.
# "<|" is parted, so that a marker that stands in a text is never one piece: a piece of the vocabulary is taken as it is.
PIECES = r"[A-Z][a-z]+|[0-9]{1,2}|\n(?:(?!<\|)[^\nA-Z0-9])*|<(?=\|)|(?:(?!<\|)[^\nA-Z0-9])+|[A-Z]"
CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{{- '<|im_start|>' + message['role'] + '\\n' -}}"
    "{%- if message['role'] == 'assistant' -%}"
    "{%- generation -%}{{- message['content'] + '<|im_end|>' -}}{%- endgeneration -%}{{- '\\n' -}}"
    "{%- else -%}{{- message['content'] + '<|im_end|>\\n' -}}{%- endif -%}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"
)


def train_tokenizer(texts: Iterator[str], words: Sequence[str]) -> Any:
    """A `PreTrainedTokenizerFast` trained on `texts`, in which each of `words` (capitalised) is one piece; with the chat template set.

    Taking a word of one piece from the prompt takes one step of attention; a word of several needs a head for the token before, which
    a model of this size does not find (docs/starter-model.md).
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=MERGED_SIZE,
        special_tokens=[PAD, START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    state = json.loads(tokenizer.to_str())
    vocabulary = state["model"]["vocab"]
    for word in words:
        vocabulary.setdefault(word, len(vocabulary))
    state["model"]["ignore_merges"] = True  # a word of the vocabulary is one piece though no merges lead to it
    tokenizer = Tokenizer.from_str(json.dumps(state))
    make: Any = PreTrainedTokenizerFast  # transformers gives its classes no signature
    fast = make(
        tokenizer_object=tokenizer,
        eos_token=END,
        pad_token=PAD,
        clean_up_tokenization_spaces=False,
        model_max_length=2048,
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def load_tokenizer(directory: Path) -> Any:
    """The tokenizer of a saved model directory; never looks at the network."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(str(directory), local_files_only=True)


def opening_text(messages: Sequence[Message]) -> str:
    """What the chat template renders for `messages` with the generation prompt; a test holds the two together."""
    return (
        "".join(f"{START}{message['role']}\n{message['content']}{END}\n" for message in messages)
        + f"{START}assistant\n"
    )


def turn_text(observation: str) -> str:
    """What stands between a reply's end token and the next reply."""
    return f"\n{START}user\n{observation}{END}\n{START}assistant\n"
