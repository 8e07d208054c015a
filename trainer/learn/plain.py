"""The plain torch learner: packed forward, exact GRPO loss, AdamW. One CPU or GPU process, or ranks that each hold the whole model.

With dtype bf16 the weights and the optimiser stay fp32 and the forward pass runs under autocast; checkpoints hold the fp32 weights, so a
resumed run continues with the same numbers. With LoRA (`trainer/learn/lora.py`) only the adapters are trained.

Left out on purpose: weights and optimiser sharded over ranks, and offloading, which belong to the DeepSpeed learner.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch

from trainer.config import LoraConfig, LossConfig, OptimConfig
from trainer.errors import InfrastructureError, NotFiniteError, UserError
from trainer.learn.batch import RowPack, build_packs, check_rows, split_minibatches
from trainer.learn.engine import Learner, TrainRow
from trainer.learn.lora import Adapters
from trainer.learn.loss import LossTokens, grpo_loss
from trainer.learn.packed import check_packed, packed_hidden, register_packed_attention, selected_logprobs
from trainer.learn.ranks import OneRank, Ranks
from trainer.learn.tally import Tally
from trainer.weights import load_model, load_tokenizer, read_weights, resolve_device

_MOST_PACKING_GAP = 1e-2  # of a log-prob; ordinary architectures stay below 1e-4


class PlainLearner(Learner):
    """`Learner` over one Hugging Face causal language model whose attention is `register_packed_attention()`'s."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any | None,
        *,
        loss: LossConfig,
        optim: OptimConfig,
        seed: int,
        autocast: bool = False,
        reference: Any | None = None,
        ranks: Ranks | None = None,
        adapters: Adapters | None = None,
    ) -> None:
        """`model` holds fp32 (or fp64) weights; `reference`, the frozen start weights, is needed when `loss.kl_coef` > 0.

        `adapters` are those added to `model`; they make a reference unnecessary.

        With several `ranks` each process makes the same learner and is given the same rows.
        """
        if loss.kl_coef > 0 and reference is None and adapters is None:
            raise ValueError("loss.kl_coef > 0 needs the reference model")
        self._model, self._tokenizer, self._reference = model, tokenizer, reference
        self._loss, self._optim, self._autocast = loss, optim, autocast
        self._ranks, self._adapters = ranks or OneRank(), adapters
        self._trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._generator = torch.Generator().manual_seed(seed)
        self._updates = 0
        self._optimizer = torch.optim.AdamW(
            self._trained,
            lr=optim.learning_rate,
            betas=(optim.beta1, optim.beta2),
            weight_decay=optim.weight_decay,
            fused=True,
        )
        _without_dropout(model)

    @classmethod
    def from_directory(
        cls,
        path: Path,
        *,
        loss: LossConfig,
        optim: OptimConfig,
        dtype: Literal["fp32", "bf16"],
        device: str,
        seed: int,
        reference_directory: Path,
        lora: LoraConfig | None = None,
    ) -> PlainLearner:
        """Load a model directory. `reference_directory` (the weights the run started from) is read only when `loss.kl_coef` > 0.

        Raises `UserError` when a directory or `lora.modules` is unsuitable.
        """
        attention, place = register_packed_attention(), str(resolve_device(device))
        model = load_model(path, dtype=torch.float32, device=place, attention=attention)
        gap = check_packed(model.eval())
        if not gap < _MOST_PACKING_GAP:
            raise UserError(
                f"model.path: the plain learner cannot train this architecture ({model.config.model_type}): its log-probs differ "
                f"by {gap:.2g} from the model's own. "
                "Give a model without scaled or capped logits, whose layers mix tokens by attention alone."
            )
        if optim.activation_checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        adapters = Adapters(model, lora, seed=seed) if lora is not None and lora.rank else None
        reference = None
        if loss.kl_coef > 0 and adapters is None:
            # Half the memory; autocast rounds the matrices to bf16 anyway, but not the norms: the KL of equal weights is some 3e-4, not 0.
            number = torch.bfloat16 if dtype == "bf16" else torch.float32
            reference = load_model(reference_directory, dtype=number, device=place, attention=attention)
            reference.requires_grad_(False).eval()
        tokenizer = load_tokenizer(path)
        autocast = dtype == "bf16"
        return cls(
            model,
            tokenizer,
            loss=loss,
            optim=optim,
            seed=seed,
            autocast=autocast,
            reference=reference,
            adapters=adapters,
        )

    def update(self, rows: Sequence[TrainRow], *, rollout: int) -> Mapping[str, float | None]:
        """See `Learner`. Old log-probs are those of the weights at the start; an update of one step reads them off its own forward pass."""
        check_rows(rows)
        minibatches = split_minibatches(rows, self._optim.minibatches, self._generator)
        packed = [self._packs(minibatch, rollout) for minibatch in minibatches]
        steps = len(packed) * self._optim.epochs
        before = self._snapshot() if steps > 1 else None
        old = [[self._score(self._model, pack)[0] if steps > 1 else None for pack in packs] for packs in packed]
        tally = Tally(self._ranks)
        for _epoch in range(self._optim.epochs):
            for packs, old_logps in zip(packed, old, strict=True):
                self._step(packs, old_logps, tally, before)
        self._updates += 1
        return {
            **tally.metrics(),
            **({} if self._loss.kl_coef else {"loss/kl": None}),
            "optim/lr": self._optim.learning_rate,
            "learn/rows": float(len(rows)),
            "learn/tokens": float(sum(len(row.prompt_ids) + len(row.token_ids) for row in rows)),
        }

    def _step(
        self,
        packs: Sequence[RowPack],
        old: Sequence[torch.Tensor | None],
        tally: Tally,
        before: dict[str, Any] | None,
    ) -> None:
        """One optimiser step over the packs of a minibatch."""
        # Zeros instead of None: with no gradient at all, momentum and weight decay act as they would on a zero gradient.
        for parameter in self._trained:
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.zero_()
        tally.start_step()
        for pack, old_logps in zip(packs, old, strict=True):
            with torch.set_grad_enabled(pack.has_gradient):
                new_logps, entropy = self._forward(self._model, pack)
                tokens = LossTokens(
                    new_logps_N=new_logps,
                    old_logps_N=new_logps.detach() if old_logps is None else old_logps,
                    sampler_logps_N=pack.sampler_logps_N,
                    reference_logps_N=self._reference_logps(pack),
                    entropy_N=entropy,
                    advantages_N=pack.advantages_N,
                    weights_N=pack.weights_N,
                )
                sums = grpo_loss(tokens, self._loss)
            if pack.has_gradient:
                sums.total.backward()  # type: ignore[no-untyped-call]
            tally.add(sums, tokens, pack.current_N)
        self._ranks.add(parameter.grad for parameter in self._trained if parameter.grad is not None)
        grad_norm = float(torch.nn.utils.clip_grad_norm_(self._trained, self._optim.grad_clip))
        total = tally.finish_step(grad_norm)
        if not (math.isfinite(total) and math.isfinite(grad_norm)):
            if before is not None:
                self._restore(before)
            self._optimizer.zero_grad(set_to_none=True)
            raise NotFiniteError(
                f"The update is not finite (loss {total}, gradient norm {grad_norm}); the weights were left as they were. "
                "Lower optim.learning_rate, or resume from an earlier checkpoint."
            )
        self._optimizer.step()

    def _packs(self, rows: Sequence[TrainRow], rollout: int) -> list[RowPack]:
        parameter = next(self._model.parameters())
        return build_packs(
            rows,
            budget=self._optim.micro_batch_tokens,
            rollout=rollout,
            all_count=self._loss.kl_coef > 0 or self._loss.entropy_coef > 0,
            dtype=parameter.dtype,
            device=parameter.device,
            ranks=self._ranks,
        )

    def _forward(self, model: Any, pack: RowPack) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probs and entropies of the pack's mask-1 tokens under softmax(logits / temperature), `[N]` each."""
        with torch.autocast(pack.before_N.device.type, dtype=torch.bfloat16, enabled=self._autocast):
            hidden_NC = packed_hidden(model, pack.pack)[pack.before_N]
            return selected_logprobs(
                model, hidden_NC, pack.targets_N, pack.temperature_N, entropy_gradient=self._loss.entropy_coef > 0
            )

    @torch.no_grad()
    def _score(self, model: Any, pack: RowPack) -> tuple[torch.Tensor, torch.Tensor]:
        return self._forward(model, pack)

    def _reference_logps(self, pack: RowPack) -> torch.Tensor | None:
        """Log-probs `[N]` under the weights the run started from; None when the KL term is off."""
        if self._loss.kl_coef == 0:
            return None
        if self._adapters is None:
            return self._score(self._reference, pack)[0]
        with self._adapters.switched_off():
            return self._score(self._model, pack)[0]

    def _snapshot(self) -> dict[str, Any]:
        """Weights and optimiser state, to undo the steps of an update that fails half-way."""
        weights = [parameter.detach().clone() for parameter in self._trained]
        return {"weights": weights, "optimizer": copy.deepcopy(self._optimizer.state_dict())}

    @torch.no_grad()
    def _restore(self, snapshot: Mapping[str, Any]) -> None:
        for parameter, before in zip(self._trained, snapshot["weights"], strict=True):
            parameter.copy_(before)
        self._optimizer.load_state_dict(snapshot["optimizer"])

    @torch.no_grad()
    def _copy_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        own = dict(self._model.named_parameters())
        missing = set(own)
        for name, tensor in weights:
            if name in own:
                own[name].copy_(tensor)
                missing.discard(name)
        if missing:
            raise InfrastructureError(f"{len(missing)} weights were not given, first {min(missing)}.")

    def weights(self) -> Iterable[tuple[str, torch.Tensor]]:
        """See `Learner`. The tensors are the live ones (merged ones with LoRA): copy what has to outlast the next update."""
        if self._adapters is not None:
            return self._adapters.merged()
        return ((name, parameter.detach()) for name, parameter in self._model.named_parameters())

    def save_model(self, directory: Path) -> None:
        """See `Learner`. Weights are written in fp32, so that a resumed run continues exactly; with LoRA they are the merged ones."""
        self._model.save_pretrained(directory, state_dict=dict(self.weights()) if self._adapters else None)
        if self._tokenizer is not None:
            self._tokenizer.save_pretrained(directory)

    def state(self) -> dict[str, Any]:
        return {
            "optimizer": self._optimizer.state_dict(),
            "generator": self._generator.get_state(),
            "updates": self._updates,
            "adapters": self._adapters.state() if self._adapters else None,
        }

    def load_state(self, model_directory: Path, state: Mapping[str, Any]) -> None:
        """See `Learner`. Raises `InfrastructureError` when the checkpoint is of another model, `UserError` when only one has LoRA."""
        adapters = state.get("adapters")
        if (adapters is None) != (self._adapters is None):
            how = "without" if adapters is None else "with"
            raise UserError(
                f"lora.rank: the checkpoint of {model_directory} was trained {how} adapters. Keep the setting, or start a new run with "
                "that directory as model.path."
            )
        if self._adapters is not None and adapters is not None:
            self._adapters.load_state(adapters, model_directory)
        else:
            self._copy_weights(read_weights(model_directory))
        try:
            self._optimizer.load_state_dict(dict(state["optimizer"]))
        except (ValueError, KeyError) as error:
            raise InfrastructureError(
                f"The optimiser state beside {model_directory} does not fit the model: {error}"
            ) from error
        for group in self._optimizer.param_groups:
            # The state holds the settings it was saved with; a fork may have others.
            group["lr"], group["weight_decay"] = self._optim.learning_rate, self._optim.weight_decay
            group["betas"] = (self._optim.beta1, self._optim.beta2)
        self._generator.set_state(state["generator"])
        self._updates = int(state["updates"])

    def describe(self) -> Mapping[str, Any]:
        parameter = next(self._model.parameters())
        return {
            "name": "plain",
            "device": str(parameter.device),
            "dtype": "bfloat16" if self._autocast else str(parameter.dtype).removeprefix("torch."),
            "threads": torch.get_num_threads(),
            "ranks": self._ranks.count,
            "parameters": sum(p.numel() for p in self._model.parameters()),
            "trained_parameters": sum(p.numel() for p in self._trained),
            "lora_rank": self._adapters.rank if self._adapters else 0,
            "updates": self._updates,
        }

    def close(self) -> None:
        """Free the gradients."""
        self._optimizer.zero_grad(set_to_none=True)


def _without_dropout(model: Any) -> None:
    """Train what is sampled: no dropout, which would also draw from a random stream that no checkpoint holds.

    Only the layers that recompute their activations are told that they train: without it they do not.
    """
    from transformers.modeling_layers import GradientCheckpointingLayer

    model.eval()
    for module in model.modules():
        if isinstance(module, GradientCheckpointingLayer):
            module.training = True
