from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tests.trainer.tiny_model import save_tiny_model
from trainer.errors import UserError
from trainer.weights import (
    STARTER_DIRECTORY,
    load_config,
    load_model,
    load_tokenizer,
    read_weights,
    resolve_device,
    resolve_model_path,
)


def test_the_built_in_name_is_the_directory_in_the_package() -> None:
    assert STARTER_DIRECTORY.parts[-3:] == ("trainer", "starter", "model")
    with pytest.raises(UserError, match="unknown built-in model"):
        resolve_model_path("builtin:other")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (None, "does not exist"),
        ({}, "no config.json"),
        ({"config.json": "{}", "pytorch_model.bin": "x"}, "safetensors"),
    ],
)
def test_an_unsuitable_directory_says_what_is_wrong(tmp_path: Path, files: dict[str, str] | None, message: str) -> None:
    directory = tmp_path / "model"
    if files is not None:
        directory.mkdir()
        for name, text in files.items():
            (directory / name).write_text(text)
    with pytest.raises(UserError, match=message):
        resolve_model_path(str(directory))


def test_a_file_is_not_a_model_directory(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    file.write_text("")
    with pytest.raises(UserError, match="is a file"):
        resolve_model_path(str(file))


def test_damaged_parts_are_user_errors(tmp_path: Path) -> None:
    directory = save_tiny_model(tmp_path / "tiny")
    assert resolve_model_path(str(directory)) == directory
    weights = directory / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(UserError, match="cannot be read"):
        list(read_weights(directory))
    with pytest.raises(UserError, match="cannot be loaded"):
        load_model(directory, dtype=torch.float32, device="cpu")
    (directory / "config.json").write_text(json.dumps({"model_type": "no-such-model"}))
    with pytest.raises(UserError, match="does not describe a model"):
        load_config(directory)


@pytest.mark.parametrize(
    "index", ["{}", "[]", "not json", '{"weight_map": 3}', '{"weight_map": {"w": 3}}', "[" * 100_000]
)
def test_an_index_that_is_none_is_a_user_error_that_names_it(tmp_path: Path, index: str) -> None:
    directory = save_tiny_model(tmp_path)
    (directory / "model.safetensors.index.json").write_text(index)
    with pytest.raises(UserError, match=r"model\.safetensors\.index\.json is no index of weight files"):
        resolve_model_path(str(directory))


@pytest.mark.parametrize("config", ["3", "[]", '{"model_type": []}', '{"model_type": "qwen3", "rope_parameters": 3}'])
def test_a_malformed_config_is_a_user_error_that_names_it(tmp_path: Path, config: str) -> None:
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(UserError, match=r"config\.json does not describe a model this version can load"):
        load_config(tmp_path)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
@pytest.mark.parametrize("text", ["[]", "3", "not json"])
def test_a_malformed_tokenizer_is_a_user_error(tmp_path: Path, name: str, text: str) -> None:
    directory = save_tiny_model(tmp_path)
    (directory / name).write_text(text)
    with pytest.raises(UserError, match="no tokenizer this version can load"):
        load_tokenizer(directory)


def test_memory_that_runs_out_while_a_model_is_read_is_no_broken_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr("transformers.AutoModelForCausalLM.from_pretrained", full)
    with pytest.raises(torch.OutOfMemoryError):
        load_model(save_tiny_model(tmp_path), dtype=torch.float32, device="cpu")


def test_missing_weights_are_not_silently_made_up(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    directory = save_tiny_model(tmp_path)
    tensors = load_file(directory / "model.safetensors")
    del tensors["model.norm.weight"]
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match=r"lacks 1 weights.*model.norm.weight"):
        load_model(directory, dtype=torch.float32, device="cpu")


def test_a_directory_without_tokenizer_is_a_user_error(tmp_path: Path) -> None:
    directory = save_tiny_model(tmp_path)
    for file in directory.glob("tokenizer*"):
        file.unlink()
    with pytest.raises(UserError, match="no tokenizer"):
        load_tokenizer(directory)


def test_sharded_weights_are_read_in_full(tmp_path: Path) -> None:
    directory = save_tiny_model(tmp_path)
    names = {name for name, _ in read_weights(directory)}
    model = load_model(directory, dtype=torch.float32, device="cpu")
    (directory / "model.safetensors").unlink()
    model.save_pretrained(directory, max_shard_size="20KB")
    assert len(list(directory.glob("*.safetensors"))) > 1
    assert {name for name, _ in read_weights(directory)} == names


def test_asking_for_a_missing_cuda_device_is_a_user_error() -> None:
    assert resolve_device("cpu").type == "cpu"
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    assert resolve_device("auto").type == "cpu"
    with pytest.raises(UserError, match="no CUDA device"):
        resolve_device("cuda")
