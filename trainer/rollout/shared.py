"""Decode attention over prompts that several sequences share: their keys and values are stored once and read once for all of them.

Plays of one environment often open with the same words, and at a batch of 64 reading keys and values is most of a decode step on a CPU. A
sequence whose prompt is shared keeps only its own tokens in its cache row; attention over the shared prompt and over the row are two
softmaxes joined by their log-sums, which is the same number up to rounding.

Shapes: B sequences, S shared prompts, M the most sequences of one of them, L layers, H query heads, K key-value heads, G = H / K,
X = M * G, D head size, P the longest shared prompt, R sequences that have one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from trainer.rollout.attention import attention_with_log_sum


@dataclass(frozen=True, slots=True, eq=False)
class SharedPrompt:
    """Keys and values of a prompt, `[2, L, K, length, D]`."""

    kv_2LKTD: torch.Tensor

    @property
    def length(self) -> int:
        return self.kv_2LKTD.shape[3]


class SharedPrompts:
    """The shared prompts of the sequences in flight, laid out for one attention call per layer."""

    def __init__(self, prompts: Sequence[SharedPrompt]) -> None:
        """Lay out distinct prompts, at least one, padded to the longest."""
        self._places = {prompt: place for place, prompt in enumerate(prompts)}
        lengths = [prompt.length for prompt in prompts]
        longest, like = max(lengths), prompts[0].kv_2LKTD
        two, layers, heads, _, size = like.shape
        self._kv_2LSKPD = like.new_zeros((two, layers, len(prompts), heads, longest, size))
        for place, prompt in enumerate(prompts):
            self._kv_2LSKPD[:, :, place, :, : prompt.length] = prompt.kv_2LKTD
        self._mask: torch.Tensor | None = None
        if min(lengths) < longest:
            beyond_SP = torch.arange(longest)[None] >= torch.tensor(lengths)[:, None]
            self._mask = like.new_zeros((len(prompts), 1, 1, longest))
            self._mask.masked_fill_(beyond_SP[:, None, None], float("-inf"))

    def of(self, sequences: Sequence[SharedPrompt | None]) -> SharedAttention:
        """What cache rows 0 … B-1 share. Every one that is not None must be one of the prompts."""
        members: list[list[int]] = [[] for _ in self._places]
        rows, places = [], []
        for row, prompt in enumerate(sequences):
            if prompt is not None:
                place = self._places[prompt]
                rows.append(row)
                places.append((place, len(members[place])))
                members[place].append(row)
        most = max(len(m) for m in members)
        return SharedAttention(
            kv_2LSKPD=self._kv_2LSKPD,
            mask=self._mask,
            members_SM=torch.tensor(
                [m + [0] * (most - len(m)) for m in members]
            ),  # padded with row 0, whose answer nobody takes
            places_R=torch.tensor([place * most + member for place, member in places]),
            rows_R=torch.tensor(rows) if len(rows) < len(sequences) else None,
        )


@dataclass(frozen=True, slots=True)
class SharedAttention:
    """`SharedPrompts` for the present rows; `rows_R` is None when every row has one."""

    kv_2LSKPD: torch.Tensor
    mask: torch.Tensor | None
    members_SM: torch.Tensor
    places_R: torch.Tensor
    rows_R: torch.Tensor | None

    def reordered(self, order_B: torch.Tensor) -> SharedAttention:
        """The same when sequence `order_B[i]` comes i-th."""
        places_B = order_B.argsort()
        rows = torch.arange(len(order_B)) if self.rows_R is None else self.rows_R
        return replace(self, members_SM=places_B[self.members_SM], rows_R=places_B[rows])

    def join(self, layer: int, q_BHD: torch.Tensor, own_BHD: torch.Tensor, own_sum_BH: torch.Tensor) -> torch.Tensor:
        """Add the shared prompts to the attention over the rows' own tokens; returns `[B, H, D]`."""
        prompts, most = self.members_SM.shape
        heads, (_, queries, size) = self.kv_2LSKPD.shape[3], q_BHD.shape
        q_SMKGD = q_BHD[self.members_SM].view(prompts, most, heads, -1, size)
        q_SKXD = q_SMKGD.transpose(1, 2).reshape(prompts, heads, -1, size)
        out_SKXD, sum_SKX = attention_with_log_sum(
            q_SKXD, self.kv_2LSKPD[0, layer], self.kv_2LSKPD[1, layer], self.mask
        )
        out_SKMGD, sum_SKMG = out_SKXD.view(prompts, heads, most, -1, size), sum_SKX.view(prompts, heads, most, -1)
        out_RHD = out_SKMGD.transpose(1, 2).reshape(-1, queries, size)[self.places_R]
        sum_RH = sum_SKMG.transpose(1, 2).reshape(-1, queries)[self.places_R]
        rows = self.rows_R
        own_RHD, own_sum_RH = (own_BHD, own_sum_BH) if rows is None else (own_BHD[rows], own_sum_BH[rows])
        share_RH1 = torch.sigmoid(sum_RH - own_sum_RH)[..., None]  # of the shared prompt in the joined softmax
        joined_RHD = torch.lerp(own_RHD, out_RHD, share_RH1.to(own_RHD.dtype))
        return joined_RHD if rows is None else own_BHD.index_copy(0, rows, joined_RHD)
