"""Decode attention over prompts that several sequences share: their keys and values are stored once and read once for all of them.

Plays of one environment often open with the same words, and at a batch of 64 reading keys and values is most of a decode step on a CPU. A
sequence whose prompt is shared keeps only its own tokens in its cache row; attention over the shared prompt and over the row are two
softmaxes joined by their log-sums, which is the same number up to rounding.

Shapes: B sequences, S shared prompts, M the most sequences of one of them, L layers, K key-value heads, G query heads of each, D head size,
P the longest shared prompt, R sequences that have one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True, eq=False)
class SharedPrompt:
    """Keys and values of a prompt, `[2, L, K, length, D]`."""

    kv_2LKTD: torch.Tensor

    @property
    def length(self) -> int:
        return self.kv_2LKTD.shape[3]


def attention_with_log_sum(
    q_BKXD: torch.Tensor, k_BKTD: torch.Tensor, v_BKTD: torch.Tensor, mask: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention outputs `[B, K, X, D]` and the log of each query's softmax sum, `[B, K, X]` in fp32. CPU only."""
    attend = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    out, log_sum = attend(q_BKXD, k_BKTD, v_BKTD, 0.0, False, attn_mask=mask)
    return out, log_sum


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

    def join(self, layer: int, q_BKGD: torch.Tensor, own_BKGD: torch.Tensor, own_sum_BKG: torch.Tensor) -> torch.Tensor:
        """Add the shared prompts to the attention over the rows' own tokens; returns `[B, K, G, D]`."""
        prompts, most = self.members_SM.shape
        _, heads, group, size = q_BKGD.shape
        q_SKXD = q_BKGD[self.members_SM].transpose(1, 2).reshape(prompts, heads, most * group, size)
        out_SKXD, sum_SKX = attention_with_log_sum(
            q_SKXD, self.kv_2LSKPD[0, layer], self.kv_2LSKPD[1, layer], self.mask
        )
        out_SKMGD = out_SKXD.view(prompts, heads, most, group, size)
        out_RKGD = out_SKMGD.transpose(1, 2).reshape(-1, heads, group, size)[self.places_R]
        sum_RKG = sum_SKX.view(prompts, heads, most, group).transpose(1, 2).reshape(-1, heads, group)[self.places_R]
        rows = self.rows_R
        own_RKGD, own_sum_RKG = (own_BKGD, own_sum_BKG) if rows is None else (own_BKGD[rows], own_sum_BKG[rows])
        share_RKG1 = torch.sigmoid(sum_RKG - own_sum_RKG)[..., None]  # of the shared prompt in the joined softmax
        number = share_RKG1.dtype
        joined_RKGD = torch.lerp(own_RKGD.to(number), out_RKGD.to(number), share_RKG1).to(own_BKGD.dtype)
        return joined_RKGD if rows is None else own_BKGD.index_copy(0, rows, joined_RKGD)
