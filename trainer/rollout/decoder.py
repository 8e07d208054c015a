"""A Qwen3 decoder written for generation: fused projections, preallocated key-value cache, packed prefill, grouped decode attention.

It reads the weights of a Hugging Face `Qwen3ForCausalLM` and agrees with its forward pass to rounding. Why by hand: the library's
generation repeats keys and values for every query head and copies the cache at every step; on a CPU that costs a factor of two to three.

Shapes: N tokens packed from several sequences, B sequences, C hidden size, H query heads, K key-value heads, G = H / K, D head size,
T cache length, L layers, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from trainer.errors import InfrastructureError
from trainer.rollout.shared import SharedAttention, attention_with_log_sum

Attend = Callable[[int, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True, slots=True)
class DecoderShape:
    """Sizes and constants of a Qwen3 model."""

    vocab: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    eps: float
    rope_theta: float
    max_positions: int
    tied: bool

    @classmethod
    def from_config(cls, config: Any) -> DecoderShape:
        """From a Hugging Face `Qwen3Config`."""
        return cls(
            vocab=config.vocab_size,
            hidden=config.hidden_size,
            layers=config.num_hidden_layers,
            heads=config.num_attention_heads,
            kv_heads=config.num_key_value_heads,
            head_dim=config.head_dim,
            mlp=config.intermediate_size,
            eps=config.rms_norm_eps,
            rope_theta=config.rope_parameters["rope_theta"],
            max_positions=config.max_position_embeddings,
            tied=config.tie_word_embeddings,
        )


def unsupported_reason(config: Any) -> str | None:
    """Why this decoder cannot run the model (None: it can)."""
    if config.model_type != "qwen3":
        return f"architecture {config.model_type}"
    if config.attention_bias:
        return "attention biases"
    if config.hidden_act != "silu":
        return f"activation {config.hidden_act}"
    if config.rope_parameters.get("rope_type", "default") != "default":
        return f"rope type {config.rope_parameters['rope_type']}"
    if any(kind != "full_attention" for kind in config.layer_types or ()):
        return "sliding-window attention"
    return None


class KVCache:
    """Keys and values of up to B sequences, `[L, B, K, T, D]` each; rows are reused, unused places hold finite numbers (zero at first)."""

    def __init__(self, shape: DecoderShape, *, dtype: torch.dtype, device: torch.device) -> None:
        self._shape, self._dtype, self._device = shape, dtype, device
        self.k = self.v = torch.zeros(shape.layers, 0, shape.kv_heads, 0, shape.head_dim, dtype=dtype, device=device)

    @property
    def bytes_per_token(self) -> int:
        return 2 * self._shape.layers * self._shape.kv_heads * self._shape.head_dim * self.k.element_size()

    @property
    def rows(self) -> int:
        return self.k.shape[1]

    def reserve(self, rows: int, tokens: int) -> None:
        """Make room for `rows` sequences of `tokens`; what is stored stays. Grows by half so that growth is rare."""
        old_rows, old_tokens = self.k.shape[1], self.k.shape[3]
        if rows <= old_rows and tokens <= old_tokens:
            return
        if tokens > old_tokens:
            tokens = max(tokens, old_tokens * 3 // 2)
            tokens += -tokens % 64
        rows, tokens = max(rows, old_rows), max(tokens, old_tokens)
        size = (self._shape.layers, rows, self._shape.kv_heads, tokens, self._shape.head_dim)
        for name in ("k", "v"):
            # Zeros, not empty: masked places are multiplied by probability 0, and 0 times a stray NaN would be NaN.
            bigger = torch.zeros(size, dtype=self._dtype, device=self._device)
            bigger[:, :old_rows, :, :old_tokens] = getattr(self, name)
            setattr(self, name, bigger)

    def copy_row(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` tokens of one row to another."""
        self.k[:, target, :, :length] = self.k[:, source, :, :length]
        self.v[:, target, :, :length] = self.v[:, source, :, :length]

    def read_row(self, row: int, length: int) -> torch.Tensor:
        """A copy of the first `length` tokens of a row, `[2, L, K, length, D]`."""
        return torch.stack((self.k[:, row, :, :length], self.v[:, row, :, :length]))

    def write_row(self, row: int, kv_2LKTD: torch.Tensor, length: int) -> None:
        """Write the first `length` tokens of `read_row`'s result into a row."""
        self.k[:, row, :, :length] = kv_2LKTD[0, :, :, :length]
        self.v[:, row, :, :length] = kv_2LKTD[1, :, :, :length]


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of new tokens of one sequence: they go to cache row `row` from position `start` on; earlier positions are already there."""

    row: int
    start: int
    token_ids: Sequence[int]


class _Layer:
    def __init__(self, shape: DecoderShape, dtype: torch.dtype, device: torch.device) -> None:
        def empty(*size: int) -> torch.Tensor:
            return torch.empty(size, dtype=dtype, device=device)

        width, kv_width = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        self.qkv = empty(width + 2 * kv_width, shape.hidden)
        self.o = empty(shape.hidden, width)
        self.gate_up = empty(2 * shape.mlp, shape.hidden)
        self.down = empty(shape.hidden, shape.mlp)
        self.attention_norm = empty(shape.hidden)
        self.mlp_norm = empty(shape.hidden)
        self.qk_norm = empty(shape.heads + shape.kv_heads, shape.head_dim)
        self.targets = {
            "self_attn.q_proj.weight": self.qkv[:width],
            "self_attn.k_proj.weight": self.qkv[width : width + kv_width],
            "self_attn.v_proj.weight": self.qkv[width + kv_width :],
            "self_attn.o_proj.weight": self.o,
            "self_attn.q_norm.weight": self.qk_norm[: shape.heads],
            "self_attn.k_norm.weight": self.qk_norm[shape.heads :],
            "mlp.gate_proj.weight": self.gate_up[: shape.mlp],
            "mlp.up_proj.weight": self.gate_up[shape.mlp :],
            "mlp.down_proj.weight": self.down,
            "input_layernorm.weight": self.attention_norm,
            "post_attention_layernorm.weight": self.mlp_norm,
        }


class Qwen3Decoder:
    """The weights and the two passes, `prefill` and `decode`. Call under `torch.inference_mode()`."""

    def __init__(self, shape: DecoderShape, *, dtype: torch.dtype, device: torch.device) -> None:
        self.shape, self.dtype, self.device = shape, dtype, device
        self._layers = [_Layer(shape, dtype, device) for _ in range(shape.layers)]
        self._embedding = torch.empty(shape.vocab, shape.hidden, dtype=dtype, device=device)
        self._head = self._embedding if shape.tied else torch.empty_like(self._embedding)
        self._norm = torch.empty(shape.hidden, dtype=dtype, device=device)
        self._cos_PD = self._sin_PD = torch.empty(0, shape.head_dim, dtype=dtype, device=device)

    def parameters(self) -> int:
        """Number of weights, tied ones counted once."""
        shape = self.shape
        layers = sum(w.numel() for layer in self._layers for w in (layer.qkv, layer.o, layer.gate_up, layer.down))
        norms = shape.layers * 2 * (shape.hidden + shape.head_dim) + shape.hidden
        return layers + norms + self._embedding.numel() * (1 if shape.tied else 2)

    @torch.no_grad()
    def load(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Take over weights by Hugging Face name. Raises `InfrastructureError` when one is missing, unknown or of another shape."""
        targets = {"model.embed_tokens.weight": self._embedding, "model.norm.weight": self._norm}
        if not self.shape.tied:
            targets["lm_head.weight"] = self._head
        for index, layer in enumerate(self._layers):
            targets |= {f"model.layers.{index}.{name}": target for name, target in layer.targets.items()}
        missing = set(targets)
        for name, tensor in weights:
            if name == "lm_head.weight" and self.shape.tied:
                continue
            if name not in targets:
                raise InfrastructureError(f"Weight {name} does not belong to this Qwen3 model.")
            target = targets[name]
            per_head = "_norm.weight" in name and "self_attn" in name
            if tuple(tensor.shape) != tuple(target.shape[1:] if per_head else target.shape):
                raise InfrastructureError(
                    f"Weight {name} has shape {tuple(tensor.shape)}, the model's is {tuple(target.shape)}."
                )
            target.copy_(tensor.detach())
            missing.discard(name)
        if missing:
            raise InfrastructureError(f"{len(missing)} weights were not given, first {min(missing)}.")

    def fill(self, spread: float) -> None:
        """Random weights, for measurements without a model file."""
        for weight in (self._embedding, self._head, self._norm):
            weight.normal_(std=spread)
        for layer in self._layers:
            for target in layer.targets.values():
                target.normal_(std=spread)

    def _rope(self, positions: int) -> None:
        """Extend the rotary tables to `positions`, with the model library's own formula (fp32, then rounded to the dtype)."""
        if positions <= len(self._cos_PD):
            return
        positions = max(positions, 2 * len(self._cos_PD), 1024)
        shape = self.shape
        steps = torch.arange(0, shape.head_dim, 2, dtype=torch.float, device=self.device) / shape.head_dim
        angles = torch.arange(positions, dtype=torch.float, device=self.device)[:, None] * (
            1.0 / shape.rope_theta**steps
        )
        angles = torch.cat((angles, angles), dim=-1)
        sign = torch.ones(shape.head_dim, device=self.device)
        sign[: shape.head_dim // 2] = -1  # the half rotation puts minus the second half first
        self._cos_PD, self._sin_PD = angles.cos().to(self.dtype), (angles.sin() * sign).to(self.dtype)

    def _forward(self, tokens_N: torch.Tensor, positions_N: torch.Tensor, attend: Attend) -> torch.Tensor:
        """The layer stack; `attend(layer, q_NHD, k_NKD, v_NKD)` stores keys and values and returns `[N, H * D]`."""
        shape, half = self.shape, self.shape.head_dim // 2
        norm = (shape.hidden,)
        cos_N1D, sin_N1D = self._cos_PD[positions_N][:, None], self._sin_PD[positions_N][:, None]
        x_NC = self._embedding[tokens_N]
        for index, layer in enumerate(self._layers):
            y_NC = F.rms_norm(x_NC, norm, layer.attention_norm, shape.eps)
            qkv_NAD = F.linear(y_NC, layer.qkv).view(len(tokens_N), -1, shape.head_dim)
            qk_NAD, v_NKD = qkv_NAD.split_with_sizes((shape.heads + shape.kv_heads, shape.kv_heads), dim=1)
            qk_NAD = F.rms_norm(qk_NAD, (shape.head_dim,), None, shape.eps).mul_(layer.qk_norm)
            swapped_NAD = torch.cat((qk_NAD[..., half:], qk_NAD[..., :half]), dim=-1)
            qk_NAD.mul_(cos_N1D).add_(swapped_NAD.mul_(sin_N1D))
            q_NHD, k_NKD = qk_NAD.split_with_sizes((shape.heads, shape.kv_heads), dim=1)
            x_NC += F.linear(attend(index, q_NHD, k_NKD, v_NKD), layer.o)
            gate, up = F.linear(F.rms_norm(x_NC, norm, layer.mlp_norm, shape.eps), layer.gate_up).chunk(2, dim=-1)
            x_NC += F.linear(F.silu(gate, inplace=True).mul_(up), layer.down)
        return x_NC

    def _logits(self, x_NC: torch.Tensor) -> torch.Tensor:
        return F.linear(F.rms_norm(x_NC, (self.shape.hidden,), self._norm, self.shape.eps), self._head)

    def prefill(self, segments: Sequence[Segment], cache: KVCache) -> torch.Tensor:
        """Process new tokens of several sequences in one packed pass (no padding); returns the logits after each one's last, `[len, V]`."""
        shape, device = self.shape, self.device
        ends = torch.tensor([len(s.token_ids) for s in segments]).cumsum(0).tolist()
        bounds = list(zip([0, *ends[:-1]], ends, strict=True))
        tokens_N = torch.tensor([t for s in segments for t in s.token_ids], device=device)
        positions_N = torch.cat([torch.arange(s.start, s.start + len(s.token_ids)) for s in segments]).to(device)
        self._rope(max(s.start + len(s.token_ids) for s in segments))
        masks = [_continuation_mask(s, device) for s in segments]

        def attend(layer: int, q_NHD: torch.Tensor, k_NKD: torch.Tensor, v_NKD: torch.Tensor) -> torch.Tensor:
            out_NHD = torch.empty_like(q_NHD, memory_format=torch.contiguous_format)
            for segment, (a, b), mask in zip(segments, bounds, masks, strict=True):
                end = segment.start + b - a
                k_KTD, v_KTD = cache.k[layer, segment.row, :, :end], cache.v[layer, segment.row, :, :end]
                k_KTD[:, segment.start :] = k_NKD[a:b].transpose(0, 1)
                v_KTD[:, segment.start :] = v_NKD[a:b].transpose(0, 1)
                out_1HSD = F.scaled_dot_product_attention(
                    q_NHD[a:b].transpose(0, 1)[None], k_KTD[None], v_KTD[None],
                    attn_mask=mask, is_causal=mask is None and b - a > 1, enable_gqa=shape.heads != shape.kv_heads,
                )  # fmt: skip
                out_NHD[a:b] = out_1HSD[0].transpose(0, 1)
            return out_NHD.flatten(1)

        x_NC = self._forward(tokens_N, positions_N, attend)
        return self._logits(x_NC[torch.tensor(ends, device=device) - 1])

    def decode(
        self,
        tokens: Sequence[int],
        lengths: Sequence[int],
        cache: KVCache,
        *,
        shared: SharedAttention | None = None,
        shared_lengths: Sequence[int] = (),
    ) -> torch.Tensor:
        """One step of cache rows 0 … B-1: token i goes to place `lengths[i]` of its row; returns the next logits, `[B, V]`.

        With `shared`, a row's tokens come after the `shared_lengths[i]` tokens of its shared prompt.
        """
        shape, rows, longest = self.shape, len(tokens), max(lengths) + 1
        tokens_B = torch.tensor(tokens, device=self.device)
        places_B = torch.tensor(lengths, device=self.device)
        positions_B = places_B + torch.tensor(shared_lengths, device=self.device) if shared is not None else places_B
        rows_B = torch.arange(rows, device=self.device)
        self._rope(longest + max(shared_lengths, default=0))
        mask: torch.Tensor | None = None
        if min(lengths) + 1 < longest:
            seen_BT = torch.arange(longest, device=self.device) <= places_B[:, None]
            mask = torch.zeros(rows, 1, 1, longest, dtype=self.dtype, device=self.device)
            mask.masked_fill_(~seen_BT[:, None, None], float("-inf"))

        def attend(layer: int, q_BHD: torch.Tensor, k_BKD: torch.Tensor, v_BKD: torch.Tensor) -> torch.Tensor:
            k_BKTD, v_BKTD = cache.k[layer], cache.v[layer]
            k_BKTD[rows_B, :, places_B] = k_BKD
            v_BKTD[rows_B, :, places_B] = v_BKD
            k_BKTD, v_BKTD = k_BKTD[:rows, :, :longest], v_BKTD[:rows, :, :longest]
            # The G query heads of one key-value head become its query length, so keys and values are read once.
            q_BKGD = q_BHD.reshape(rows, shape.kv_heads, -1, shape.head_dim)
            if shared is None:
                return F.scaled_dot_product_attention(q_BKGD, k_BKTD, v_BKTD, attn_mask=mask).reshape(rows, -1)
            own_BKGD, sum_BKG = attention_with_log_sum(q_BKGD, k_BKTD, v_BKTD, mask)
            return shared.join(layer, q_BKGD, own_BKGD, sum_BKG).reshape(rows, -1)

        return self._logits(self._forward(tokens_B, positions_B, attend))


def _continuation_mask(segment: Segment, device: torch.device) -> torch.Tensor | None:
    """Causal mask `[S, start + S]` of tokens that continue a cached prefix; None where plain causal attention does."""
    new = len(segment.token_ids)
    if segment.start == 0 or new == 1:
        return None
    places = torch.arange(segment.start + new, device=device)
    return places[None] <= places[segment.start :, None]
