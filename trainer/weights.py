"""Model directories: where they are, whether they fit, and reading them. Only ordinary Hugging Face directories with safetensors weights.

Nothing here downloads and nothing here runs code from a model directory (`trust_remote_code` stays off, pickled weights are refused).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer.address_space import is_out_of_memory
from trainer.errors import UserError
from trainer.paths import given_path

if TYPE_CHECKING:
    import torch

STARTER_NAME = "builtin:starter"
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")
STARTER_DIRECTORY = Path(__file__).parent / "starter" / "model"


def resolve_model_path(path: str) -> Path:
    """The model directory a setting names; `builtin:starter` is the model in the repository.

    Raises `UserError` when it does not exist, is no model directory, or holds only pickled weights.
    """
    if path.startswith("builtin:") and path != STARTER_NAME:
        raise UserError(f"model.path: unknown built-in model {path!r}; the only one is {STARTER_NAME!r}.")
    directory = STARTER_DIRECTORY if path == STARTER_NAME else given_path("model.path", path)
    if directory is None:
        raise UserError(f"model.path: {path} does not exist. Give a Hugging Face model directory or {STARTER_NAME!r}.")
    if not directory.is_dir():
        raise UserError(f"model.path: {directory} is a file. Give the directory that holds config.json.")
    if not (directory / "config.json").is_file():
        raise UserError(f"model.path: {directory} has no config.json, so it is no Hugging Face model directory.")
    if not weight_files(directory):
        raise UserError(
            f"model.path: {directory} has no *.safetensors weights. Save the model with save_pretrained(safe_serialization=True)."
        )
    return directory


def weight_files(directory: Path) -> list[Path]:
    """The safetensors files of the model, in name order; those the index names when there is an index."""
    index = directory / "model.safetensors.index.json"
    if index.is_file():
        return [directory / name for name in _indexed_files(index)]
    return sorted(directory.glob("*.safetensors"))


def _indexed_files(index: Path) -> list[str]:
    """Names of the files an index names, each once. Raises `UserError` when it is no index."""
    try:
        return sorted({Path(name).name for name in json.loads(index.read_bytes())["weight_map"].values()})
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(
            f'model.path: {index} is no index of weight files (an object whose "weight_map" names a file for each weight). Save the '
            "model again."
        ) from error


def parameter_count(directory: Path) -> int:
    """Weights in the files of a model directory, from their headers; tied ones are stored, and counted, once."""
    from safetensors import safe_open

    total = 0
    for file in weight_files(directory):
        with safe_open(file, framework="pt") as tensors:
            total += sum(math.prod(tensors.get_slice(name).get_shape()) for name in tensors.keys())  # noqa: SIM118 - no dict
    return total


def read_weights(directory: Path) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield (Hugging Face parameter name, tensor on the CPU), one tensor in memory at a time.

    Raises `UserError` when a weight file is missing or damaged.
    """
    from safetensors import SafetensorError, safe_open

    for file in weight_files(directory):
        try:
            with safe_open(file, framework="pt") as tensors:
                for name in tensors.keys():  # noqa: SIM118 - not a dict, it has no __iter__
                    yield name, tensors.get_tensor(name)
        except (SafetensorError, OSError) as error:
            raise UserError(f"Model weights {file} cannot be read ({error}). Copy the file again.") from error


def load_config(directory: Path) -> Any:
    """The model's Hugging Face config. Raises `UserError` when transformers does not know the architecture."""
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(directory, local_files_only=True)
    except Exception as error:  # a malformed file fails anywhere in the library
        if is_out_of_memory(error):
            raise
        raise UserError(f"{directory}/config.json does not describe a model this version can load: {error}") from error


def load_tokenizer(directory: Path) -> Any:
    """The model's fast tokenizer. Raises `UserError` when there is none."""
    from transformers import AutoTokenizer

    # Without this check the library makes an empty tokenizer of the model's usual class.
    if not any((directory / name).is_file() for name in _TOKENIZER_FILES):
        raise UserError(f"{directory} has no tokenizer. Save it there with tokenizer.save_pretrained().")
    try:
        return AutoTokenizer.from_pretrained(directory, local_files_only=True)
    except Exception as error:  # a malformed file fails anywhere in the library
        if is_out_of_memory(error):
            raise
        raise UserError(
            f"{directory} has no tokenizer this version can load: {error}. Save it with tokenizer.save_pretrained()."
        ) from error


def load_model(directory: Path, *, dtype: torch.dtype, device: str, attention: str = "sdpa") -> Any:
    """The Hugging Face causal language model with all its weights. Raises `UserError` when they do not fit the config."""
    import transformers

    library: Any = transformers  # its annotations do not cover output_loading_info
    library.utils.logging.disable_progress_bar()
    try:
        model, report = library.AutoModelForCausalLM.from_pretrained(
            directory, local_files_only=True, dtype=dtype, attn_implementation=attention, output_loading_info=True
        )
    except Exception as error:  # a malformed file fails anywhere in the library
        if is_out_of_memory(error):
            raise
        raise UserError(f"{directory} cannot be loaded as a causal language model: {error}") from error
    if report["missing_keys"]:
        missing = sorted(report["missing_keys"])
        raise UserError(
            f"{directory} lacks {len(missing)} weights its config asks for, first {missing[0]}. Save the model again."
        )
    return model.to(device)


def check_context(config: Any, path: Path, context_tokens: int) -> None:
    """Raise `UserError` when the model is made for fewer positions than the run's context."""
    positions = getattr(config, "max_position_embeddings", None)
    if positions is not None and context_tokens > positions:
        raise UserError(
            f"model.context_tokens is {context_tokens}, but {path} is made for {positions} positions. Lower model.context_tokens."
        )


def resolve_device(device: str) -> torch.device:
    """ "auto", "cpu" or "cuda" as a torch device. Raises `UserError` when there is no CUDA device to use."""
    import torch

    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise UserError(
            'engine.device is "cuda", but torch finds no CUDA device. Set engine.device to "cpu" or "auto".'
        )
    return torch.device(device)
