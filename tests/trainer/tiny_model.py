"""A tiny Qwen3 model and a byte-level BPE tokenizer with a ChatML template, built in a second: real parts, random weights."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
TEXT = [
    "user assistant system You are in a maze. Guess the number between one and ten. HINT: halve the range.",
    "class GuessEnv: def reset(self, seed=None): return 'higher', {} def step(self, action): return 'lower', 0.0",
    "The hidden value is even. Your action \\boxed{5} was too low.\n\nTry again.",
]


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """About 400 tokens; <|im_start|> and <|im_end|> are special."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.train_from_iterator(
        TEXT * 4,
        trainers.BpeTrainer(
            vocab_size=400,
            special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>"],
    )
    tokenizer.chat_template = CHATML
    return tokenizer


def tiny_model(*, seed: int = 0, tied: bool = True, layers: int = 2, vocab: int = 400) -> Qwen3ForCausalLM:
    """A random Qwen3 with grouped queries (4 heads, 2 key-value heads), sharp enough that log-probs differ."""
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=vocab,
        hidden_size=32,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        intermediate_size=48,
        max_position_embeddings=2048,
        tie_word_embeddings=tied,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    )
    model = Qwen3ForCausalLM(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.add_(0.1 * torch.randn_like(parameter))
            else:
                parameter.mul_(6.0)
    return model


def save_tiny_model(directory: Path, **options: int | bool) -> Path:
    """Model and tokenizer as an ordinary Hugging Face directory."""
    tokenizer = tiny_tokenizer()
    tiny_model(vocab=len(tokenizer), **options).save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory
