"""LoRA through PEFT: small trained matrices beside frozen weights.

Only the learner knows about them. The sampler, a saved model directory and the KL reference see ordinary weights: merged ones, and with the
adapters switched off those the run started from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from trainer.config import LoraConfig
from trainer.errors import InfrastructureError, UserError
from trainer.weights import read_weights

_NAME = "default"  # PEFT's own name for the only adapter
_BASE = ".base_layer."


class Adapters:
    """The adapters of one model. They begin as an exact zero change, their other half drawn from `seed`."""

    def __init__(self, model: Any, config: LoraConfig, *, seed: int) -> None:
        """Add adapters to the model in place; only they are trained from then on.

        Raises `UserError` when no layer has a name of `lora.modules`, one of them is tied to another, or the architecture has no linear
        layer at all.
        """
        import peft
        from peft.tuners.tuners_utils import BaseTunerLayer

        settings = peft.LoraConfig(
            r=config.rank,
            lora_alpha=config.alpha,  # type: ignore[arg-type]  # an int by its annotation, a factor in its arithmetic
            target_modules=list(config.modules) or "all-linear",
            lora_dropout=0.0,  # dropout would make the learner's log-probs differ from the sampler's
            bias="none",
        )
        embeddings, head = model.get_input_embeddings(), model.get_output_embeddings()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            try:
                peft.inject_adapter_in_model(settings, model, adapter_name=_NAME)
            except ValueError as error:
                raise UserError(f"lora.modules: {error}") from error
        self.rank = config.rank
        self._model = model
        self._layers: dict[str, Any] = {
            name: module for name, module in model.named_modules() if isinstance(module, BaseTunerLayer)
        }
        shared = [n for n, layer in self._layers.items() if layer.get_base_layer() in (embeddings, head)]
        if shared and head is not None and head.weight is embeddings.weight:
            raise UserError(
                f"lora.modules: {', '.join(shared)} shares its weights with the model's other end (tied embeddings), so a change of one "
                "alone cannot be merged. Leave it out."
            )

    def merged(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Weights by their ordinary Hugging Face names, the adapters' change added."""
        with torch.no_grad():
            for name, parameter in self._model.named_parameters():
                layer, base, rest = name.rpartition(_BASE)
                if base and rest == "weight":
                    yield f"{layer}.{rest}", parameter + self._layers[layer].get_delta_weight(_NAME)
                elif base:
                    yield f"{layer}.{rest}", parameter.detach()
                elif not parameter.requires_grad:
                    yield name, parameter.detach()

    @contextmanager
    def switched_off(self) -> Iterator[None]:
        """The model as it was before any training."""
        for layer in self._layers.values():
            layer.enable_adapters(False)
        try:
            yield
        finally:
            for layer in self._layers.values():
                layer.enable_adapters(True)

    def state(self) -> dict[str, torch.Tensor]:
        """The trained tensors by parameter name, copied."""
        return {n: p.detach().clone() for n, p in self._model.named_parameters() if p.requires_grad}

    @torch.no_grad()
    def load_state(self, state: Mapping[str, torch.Tensor], model_directory: Path) -> None:
        """Take over `state()` of an earlier attempt, whose merged weights are in `model_directory`.

        Raises `InfrastructureError` when they belong to other start weights or another `lora` section.
        """
        own = {name: p for name, p in self._model.named_parameters() if p.requires_grad}
        if own.keys() != state.keys() or any(own[n].shape != state[n].shape for n in own):
            raise InfrastructureError(
                f"The adapters beside {model_directory} do not fit the settings: lora.rank or lora.modules changed."
            )
        for name, parameter in own.items():
            parameter.copy_(state[name])
        saved = dict(read_weights(model_directory))
        for name, tensor in self.merged():
            if name in saved and not torch.allclose(tensor.cpu(), saved[name].to(tensor.dtype), rtol=1e-3, atol=1e-5):
                raise InfrastructureError(
                    f"The adapters beside {model_directory} were trained on other start weights than those of model.path ({name} differs)."
                )
