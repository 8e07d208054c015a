"""A Qwen3 decoder written for generation: fused projections, preallocated key-value cache, packed prefill, grouped decode attention.

It reads the weights of a Hugging Face `Qwen3ForCausalLM` and agrees with its forward pass to rounding. Why by hand: the library's
generation repeats keys and values for every query head and copies the cache at every step; on a CPU that costs a factor of two to three.

Two number formats besides the one asked for (`dtype`): on a CPU keys and values are kept in fp32, where attention over them is faster than
in bf16; and a CPU without bf16 instructions multiplies bf16 weights in fp32, ten times faster than torch does in bf16.

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
from trainer.rollout.attention import GroupedAttention, PaddedAttention, reads_rows
from trainer.rollout.shared import SharedAttention

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


def multiplies_bf16() -> bool:
    """Whether this processor has instructions for bf16 products."""
    able = torch.cpu.get_capabilities()
    if able["architecture"] == "x86_64":
        return bool(able["avx512_bf16"] or able["amx_bf16"])
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


class KVCache:
    """Keys and values of up to B sequences, `[L, B, K, T, D]` each; rows are reused, unused places hold finite numbers (zero at first)."""

    def __init__(self, shape: DecoderShape, *, dtype: torch.dtype, device: torch.device) -> None:
        """`dtype` is the decoder's; on a CPU the numbers are fp32 all the same."""
        self._shape, self._device = shape, device
        self._dtype = torch.float32 if device.type == "cpu" else dtype
        self.k = self.v = torch.zeros(
            shape.layers, 0, shape.kv_heads, 0, shape.head_dim, dtype=self._dtype, device=device
        )

    @property
    def bytes_per_token(self) -> int:
        return 2 * self._shape.layers * self._shape.kv_heads * self._shape.head_dim * self.k.element_size()

    @property
    def rows(self) -> int:
        return self.k.shape[1]

    @property
    def tokens(self) -> int:
        """Tokens a row has room for."""
        return self.k.shape[3]

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

    def clear_row(self, row: int) -> None:
        """Zeros in all of a row."""
        self.k[:, row], self.v[:, row] = 0, 0

    def extend_row(
        self, layer: int, row: int, start: int, k_KSD: torch.Tensor, v_KSD: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store S tokens of one layer from place `start` on; returns all up to the last of them in the format of the new ones."""
        end = start + k_KSD.shape[1]
        k_KTD, v_KTD = self.k[layer, row, :, :end], self.v[layer, row, :, :end]
        k_KTD[:, start:], v_KTD[:, start:] = k_KSD, v_KSD
        if start == 0 and k_KSD.dtype != k_KTD.dtype:
            return k_KSD, v_KSD
        return k_KTD.to(k_KSD.dtype), v_KTD.to(v_KSD.dtype)

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

        def matrix(rows: int, columns: int) -> torch.Tensor:
            # A CPU multiplies a few dozen tokens in fp32 an eighth faster when columns lie one after the other.
            by_columns = device.type == "cpu" and dtype == torch.float32
            return empty(columns, rows).t() if by_columns else empty(rows, columns)

        width, kv_width = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        self.qkv = matrix(width + 2 * kv_width, shape.hidden)
        self.o = matrix(shape.hidden, width)
        self.gate_up = matrix(2 * shape.mlp, shape.hidden)
        self.down = matrix(shape.hidden, shape.mlp)
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
        """`dtype` is what weights are rounded to; `arithmetic` says what the passes compute in."""
        self.shape, self.dtype, self.device = shape, dtype, device
        emulated = dtype == torch.bfloat16 and device.type == "cpu" and not multiplies_bf16()
        self.arithmetic = number = torch.float32 if emulated else dtype
        self._layers = [_Layer(shape, number, device) for _ in range(shape.layers)]
        self._embedding = torch.empty(shape.vocab, shape.hidden, dtype=number, device=device)
        self._head = self._embedding if shape.tied else torch.empty_like(self._embedding)
        self._norm = torch.empty(shape.hidden, dtype=number, device=device)
        self._cos_PD = self._sin_PD = torch.empty(0, shape.head_dim, dtype=number, device=device)

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
            target.copy_(tensor.detach().to(self.dtype))
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
        self._cos_PD, self._sin_PD = angles.cos().to(self.arithmetic), (angles.sin() * sign).to(self.arithmetic)

    def _forward(
        self, tokens_N: torch.Tensor, positions_N: torch.Tensor, attend: Attend, wanted: torch.Tensor | None = None
    ) -> torch.Tensor:
        """The layer stack; `attend(layer, q_NHD, k_NKD, v_NKD)` stores keys and values and returns `[N, H * D]`.

        `wanted`: the tokens whose outputs are returned, all when None. The others need no more of the last layer than keys and values.
        """
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
            if wanted is not None and index == shape.layers - 1:
                q_NHD, x_NC = q_NHD[wanted], x_NC[wanted]
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
            last = len(q_NHD) < len(k_NKD)  # the last layer answers the last token of each segment only
            for place, (segment, (a, b), mask) in enumerate(zip(segments, bounds, masks, strict=True)):
                k_KSD, v_KSD = k_NKD[a:b].transpose(0, 1), v_NKD[a:b].transpose(0, 1)
                k_KTD, v_KTD = cache.extend_row(layer, segment.row, segment.start, k_KSD, v_KSD)
                asked = slice(place, place + 1) if last else slice(a, b)
                out_1HSD = F.scaled_dot_product_attention(
                    q_NHD[asked].transpose(0, 1)[None], k_KTD[None], v_KTD[None], attn_mask=None if last else mask,
                    is_causal=mask is None and b - a > 1 and not last, enable_gqa=shape.heads != shape.kv_heads,
                )  # fmt: skip
                out_NHD[asked] = out_1HSD[0].transpose(0, 1)
            return out_NHD.flatten(1)

        return self._logits(self._forward(tokens_N, positions_N, attend, torch.tensor(ends, device=device) - 1))

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
        shape, rows = self.shape, len(tokens)
        order = list(range(rows))
        grouped = reads_rows(shape.heads, shape.kv_heads, self.device)
        if grouped:
            order.sort(key=lengths.__getitem__, reverse=True)
        moved = order != list(range(rows))
        order_B = torch.tensor(order, device=self.device)
        tokens_B = torch.tensor(tokens, device=self.device)[order_B]
        places_B = torch.tensor(lengths, device=self.device)[order_B]
        positions_B = places_B
        self._rope(max(lengths) + 1 + max(shared_lengths, default=0))
        if shared is not None:
            positions_B = places_B + torch.tensor(shared_lengths, device=self.device)[order_B]
            shared = shared.reordered(order_B) if moved else shared
        own: GroupedAttention | PaddedAttention
        if grouped:
            own = GroupedAttention(
                order, [lengths[row] + 1 for row in order],
                room=cache.tokens, heads=shape.heads, kv_heads=shape.kv_heads,
            )  # fmt: skip
        else:
            own = PaddedAttention([length + 1 for length in lengths], self.device)

        def attend(layer: int, q_BHD: torch.Tensor, k_BKD: torch.Tensor, v_BKD: torch.Tensor) -> torch.Tensor:
            k_BKTD, v_BKTD = cache.k[layer], cache.v[layer]
            k_BKTD[order_B, :, places_B] = k_BKD.to(k_BKTD.dtype)
            v_BKTD[order_B, :, places_B] = v_BKD.to(v_BKTD.dtype)
            number_BHD = q_BHD.to(k_BKTD.dtype)
            if shared is None:
                return own(number_BHD, k_BKTD, v_BKTD).reshape(rows, -1).to(q_BHD.dtype)
            out_BHD, sum_BH = own.with_log_sum(number_BHD, k_BKTD, v_BKTD)
            return shared.join(layer, number_BHD, out_BHD, sum_BH).reshape(rows, -1).to(q_BHD.dtype)

        logits_BV = self._logits(self._forward(tokens_B, positions_B, attend))
        return logits_BV[order_B.argsort()] if moved else logits_BV


def _continuation_mask(segment: Segment, device: torch.device) -> torch.Tensor | None:
    """Causal mask `[S, start + S]` of tokens that continue a cached prefix; None where plain causal attention does."""
    new = len(segment.token_ids)
    if segment.start == 0 or new == 1:
        return None
    places = torch.arange(segment.start + new, device=device)
    return places[None] <= places[segment.start :, None]
