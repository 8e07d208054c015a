from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.trainer.tiny_model import save_tiny_model


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def model_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random Qwen3 with its tokenizer."""
    return save_tiny_model(tmp_path_factory.mktemp("tiny"))
