"""Opens the engines a run's settings name. The only place that knows which engines there are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainer.config import RunConfig
from trainer.errors import UserError
from trainer.learn.engine import Learner
from trainer.rollout.engine import Sampler
from trainer.rollout.tokens import ChatFormat
from trainer.run import Engines
from trainer.seeds import stable_seed
from trainer.weights import load_config, load_tokenizer, resolve_model_path


def open_engines(config: RunConfig, known: Mapping[str, Any]) -> Engines:
    """Sampler, learner and tokenizer of `config.model`. `known` holds the thread count an earlier attempt measured.

    Raises `UserError` when the model, a device or an engine is not there.
    """
    directory = resolve_model_path(config.model.path)
    if config.needs_gpu:
        _require_gpu()
    model_config = load_config(directory)  # before the tokenizer, whose loading fails on a broken config.json as well
    tokenizer = load_tokenizer(directory)
    chat = ChatFormat(tokenizer, template_options={"enable_thinking": config.model.thinking})
    _require_embeddings(model_config, tokenizer, chat, directory)
    sampler = _open_sampler(config, directory, known)
    try:
        learner = _open_learner(config, directory)
    except BaseException:
        sampler.close()
        raise
    return Engines(sampler, learner, chat, directory)


def _open_sampler(config: RunConfig, directory: Path, known: Mapping[str, Any]) -> Sampler:
    if config.engine.sampler != "builtin":
        raise UserError(f"engine.sampler: {config.engine.sampler} is not available in this version; use builtin")
    from trainer.rollout.open import open_sampler

    return open_sampler(
        directory,
        dtype=config.model.dtype,
        device=config.engine.device,
        threads=config.engine.threads or int(known.get("threads") or 0),
        context_tokens=config.model.context_tokens,
        max_batch=config.engine.sampler_batch,
    )


def _open_learner(config: RunConfig, directory: Path) -> Learner:
    if config.engine.learner != "plain":
        raise UserError(f"engine.learner: {config.engine.learner} is not available in this version; use plain")
    from trainer.learn.plain import PlainLearner

    return PlainLearner.from_directory(
        directory,
        loss=config.loss,
        optim=config.optim,
        dtype=config.model.dtype,
        device=config.engine.device,
        seed=stable_seed(config.seed, "learner"),
        reference_directory=directory,
        lora=config.lora,
    )


def _require_gpu() -> None:
    import torch

    if not torch.cuda.is_available():
        raise UserError("this preset needs a CUDA device and none was found; the demo preset runs on the CPU")


def _require_embeddings(model_config: Any, tokenizer: Any, chat: ChatFormat, directory: Path) -> None:
    """Every id that can be said needs an embedding: those of text, and those of the control tokens the chat template writes.

    Other added tokens do no harm, and some published models have them beyond their embeddings.
    """
    embeddings = getattr(model_config.get_text_config(), "vocab_size", None)
    if embeddings is None:
        return
    template = str(tokenizer.chat_template)
    named = (number for number, token in tokenizer.added_tokens_decoder.items() if str(token.content) in template)
    written = (*chat.prompt_ids([{"role": "user", "content": ""}]), *chat.observation_ids(""), *chat.stop_ids)
    text = tokenizer.backend_tokenizer.get_vocab(with_added_tokens=False).values()
    largest = max((*text, *named, *written))
    if largest >= embeddings:
        raise UserError(
            f"model.path: the tokenizer of {directory} has ids up to {largest}, but the model has {embeddings} embeddings (ids up to "
            f"{embeddings - 1}). Call model.resize_token_embeddings({largest + 1}) and save the model again, or give it its own tokenizer."
        )
