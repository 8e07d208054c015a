"""The built-in model's tokenizer: byte-level BPE whose merges span whole code lines, and its ChatML rendering."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from trainer.prompts import Message

VOCAB_SIZE = 3072
START, END, PAD = "<|im_start|>", "<|im_end|>", "<|endoftext|>"
# Capitalised words and numbers are pieces of their own wherever they stand, so a word of the document has the same tokens in the
# prompt and in the program. Everything between them on one line may merge, spaces included; nothing merges over a line's start.
PIECES = r"[A-Z][a-z]+|[0-9]{1,2}|\n[^\nA-Z0-9]*|[^\nA-Z0-9]+|[A-Z]"
CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{{- '<|im_start|>' + message['role'] + '\\n' -}}"
    "{%- if message['role'] == 'assistant' -%}"
    "{%- generation -%}{{- message['content'] + '<|im_end|>' -}}{%- endgeneration -%}{{- '\\n' -}}"
    "{%- else -%}{{- message['content'] + '<|im_end|>\\n' -}}{%- endif -%}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"
)


def train_tokenizer(texts: Iterator[str]) -> Any:
    """A `PreTrainedTokenizerFast` trained on `texts`, with the chat template set."""
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
        vocab_size=VOCAB_SIZE,
        special_tokens=[PAD, START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
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
