"""Decode attention: one new token of each sequence over the keys and values in its cache row.

On a CPU every sequence reads its own tokens and no padding. torch's attention for a CPU pads all rows to the longest and reaches a third of
the memory's speed when a query is one or two rows wide, and reading keys and values is most of a decode step. Scores as a sampled product
and outputs as weighted bags of rows go straight through the cache, in fp32, whatever the lengths.

Shapes: B sequences, R of them in one group of similar length, W tokens of its longest, H query heads, K key-value heads, G = H / K, D head
size, T tokens a cache row has room for.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from itertools import accumulate

import torch
import torch.nn.functional as F

# Places read for nothing before a group of its own is cheaper, in tokens of one sequence.
_WASTED_TOKENS = 400

# With more query heads on one key-value head, a matrix product that reads it once for all of them is faster.
_MOST_QUERIES = 2


def length_groups(lengths: Sequence[int], wasted: int = _WASTED_TOKENS) -> list[int]:
    """Sizes of groups of neighbours in falling `lengths`: padding each group to its longest wastes at most `wasted` tokens in each."""
    sizes: list[int] = []
    waste = longest = 0
    for length in lengths:
        waste += longest - length
        if not sizes or waste > wasted:
            sizes.append(0)
            waste, longest = 0, length
        sizes[-1] += 1
    return sizes


def reads_rows(heads: int, kv_heads: int, device: torch.device) -> bool:
    """Whether `GroupedAttention` is the faster one; else `PaddedAttention`."""
    return device.type == "cpu" and heads <= _MOST_QUERIES * kv_heads


class PaddedAttention:
    """All rows padded to the longest, in one call of torch's attention."""

    def __init__(self, lengths: Sequence[int], device: torch.device) -> None:
        self._rows, self._longest = len(lengths), max(lengths)
        self._bias: torch.Tensor | None = None
        if min(lengths) < self._longest:
            self._bias = _beyond(torch.tensor(lengths, device=device), self._longest)[:, None, None]

    def __call__(self, q_BHD: torch.Tensor, k_BKTD: torch.Tensor, v_BKTD: torch.Tensor) -> torch.Tensor:
        """Outputs `[B, H, D]`."""
        q_BKGD, k_BKWD, v_BKWD, bias = self._arguments(q_BHD, k_BKTD, v_BKTD)
        return F.scaled_dot_product_attention(q_BKGD, k_BKWD, v_BKWD, attn_mask=bias).reshape(q_BHD.shape)

    def with_log_sum(
        self, q_BHD: torch.Tensor, k_BKTD: torch.Tensor, v_BKTD: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Outputs `[B, H, D]` and the log of each query's softmax sum, `[B, H]` in fp32. CPU only."""
        out_BKGD, sum_BKG = attention_with_log_sum(*self._arguments(q_BHD, k_BKTD, v_BKTD))
        return out_BKGD.reshape(q_BHD.shape), sum_BKG.reshape(q_BHD.shape[:2])

    def _arguments(
        self, q_BHD: torch.Tensor, k_BKTD: torch.Tensor, v_BKTD: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]:
        # The G query heads of one key-value head become its query length, so keys and values are read once.
        q_BKGD = q_BHD.reshape(self._rows, k_BKTD.shape[1], -1, q_BHD.shape[-1])
        bias = None if self._bias is None else self._bias.to(q_BHD.dtype)
        return q_BKGD, k_BKTD[: self._rows, :, : self._longest], v_BKTD[: self._rows, :, : self._longest], bias


def attention_with_log_sum(
    q_BKXD: torch.Tensor, k_BKTD: torch.Tensor, v_BKTD: torch.Tensor, mask: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention outputs `[B, K, X, D]` and the log of each query's softmax sum, `[B, K, X]` in fp32. CPU only."""
    attend = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    out, log_sum = attend(q_BKXD, k_BKTD, v_BKTD, 0.0, False, attn_mask=mask)
    return out, log_sum


class GroupedAttention:
    """Sequences in groups of similar length, each read where it lies. CPU and fp32 only; answers do not depend on the other sequences."""

    def __init__(self, rows: Sequence[int], lengths: Sequence[int], *, room: int, heads: int, kv_heads: int) -> None:
        """Sequence i has the first `lengths[i]` (at least 1, falling) of the `room` tokens of cache row `rows[i]`."""
        sizes = length_groups(lengths)
        ends = list(accumulate(sizes))
        self._groups = [
            _Group(rows[end - size : end], lengths[end - size : end], room, heads, kv_heads)
            for size, end in zip(sizes, ends, strict=True)
        ]
        self._sizes = sizes

    def __call__(self, q_BHD: torch.Tensor, k_BKTD: torch.Tensor, v_BKTD: torch.Tensor) -> torch.Tensor:
        """Outputs `[B, H, D]`."""
        parts = zip(self._groups, q_BHD.split_with_sizes(self._sizes), strict=True)
        weights = [group.weights(q_RHD, k_BKTD) for group, q_RHD in parts]
        return self._outputs(weights, v_BKTD)

    def with_log_sum(
        self, q_BHD: torch.Tensor, k_BKTD: torch.Tensor, v_BKTD: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Outputs `[B, H, D]` and the log of each query's softmax sum, `[B, H]`."""
        weights, sums = [], []
        for group, q_RHD in zip(self._groups, q_BHD.split_with_sizes(self._sizes), strict=True):
            p_RHW = group.weights(q_RHD, k_BKTD)
            weights.append(p_RHW)
            sums.append(
                group.last_scores().amax(-1) - p_RHW.amax(-1).log()
            )  # the largest score, less the log of its share
        return self._outputs(weights, v_BKTD), torch.cat(sums)

    def _outputs(self, weights: Sequence[torch.Tensor], v_BKTD: torch.Tensor) -> torch.Tensor:
        outs = [group.outputs(p_RHW, v_BKTD) for group, p_RHW in zip(self._groups, weights, strict=True)]
        return outs[0] if len(outs) == 1 else torch.cat(outs)


class _Group:
    """R sequences read to W tokens; X = R * H is one query head of one sequence."""

    def __init__(self, rows: Sequence[int], lengths: Sequence[int], room: int, heads: int, kv_heads: int) -> None:
        self._heads, self._width = heads, lengths[0]
        count, width = len(rows) * heads, self._width
        # Where in the cache, seen as a list of B * K * T keys, those of every query head are.
        starts_RK = (torch.tensor(rows)[:, None] * kv_heads + torch.arange(kv_heads)) * room
        places_RKW = (starts_RK[:, :, None] + torch.arange(width)).int()
        self._places = places_RKW[:, :, None].expand(-1, -1, heads // kv_heads, -1).reshape(-1)
        self._starts = torch.arange(0, count * width + 1, width, dtype=torch.int32)
        self._products: torch.Tensor | None = None
        self._bias: torch.Tensor | None = None
        if lengths[-1] < width:
            self._bias = _beyond(torch.tensor(lengths), width)[:, None]

    def weights(self, q_RHD: torch.Tensor, k_BKTD: torch.Tensor) -> torch.Tensor:
        """Softmax of the scores, `[R, H, W]`."""
        size = q_RHD.shape[-1]
        q_XD, keys_MD = q_RHD.reshape(-1, size), k_BKTD.view(-1, size)
        if self._products is None:
            self._products = _products(self._starts, self._places, (len(q_XD), len(keys_MD)))
        torch.sparse.sampled_addmm(self._products, q_XD, keys_MD.t(), beta=0.0, alpha=size**-0.5, out=self._products)
        return torch.softmax(self.last_scores(), dim=-1)

    def last_scores(self) -> torch.Tensor:
        """Scaled scores of the latest `weights`, minus infinity behind a sequence's end: `[R, H, W]`."""
        assert self._products is not None
        scores_RHW = self._products.values().view(-1, self._heads, self._width)
        return scores_RHW if self._bias is None else scores_RHW + self._bias

    def outputs(self, p_RHW: torch.Tensor, v_BKTD: torch.Tensor) -> torch.Tensor:
        """Values weighted by `p_RHW`, `[R, H, D]`."""
        size = v_BKTD.shape[-1]
        out_XD = F.embedding_bag(
            self._places, v_BKTD.view(-1, size), self._starts[:-1], mode="sum", per_sample_weights=p_RHW.view(-1)
        )
        return out_XD.view(-1, self._heads, size)


def _products(starts: torch.Tensor, places: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
    """A sparse matrix for products of queries (rows) and keys (columns), zeros at first."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says once that this kind of sparse matrix is in beta
        return torch.sparse_csr_tensor(starts, places, torch.zeros(len(places)), size, check_invariants=False)


def _beyond(lengths_R: torch.Tensor, width: int) -> torch.Tensor:
    """Minus infinity where a row has no token, else 0: `[R, W]`."""
    empty_RW = torch.arange(width, device=lengths_R.device) >= lengths_R[:, None]
    return torch.zeros(empty_RW.shape, device=lengths_R.device).masked_fill_(empty_RW, float("-inf"))
