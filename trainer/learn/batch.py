"""From training rows to packed tensors: minibatches of whole samples, micro-batches by a token budget.

Nothing the learner computes depends on how rows are split, ordered or shared out over ranks here (beyond rounding): a token's weight in
its minibatch is fixed by `token_weights` before packing.

Shapes: T packed tokens, N mask-1 tokens of the pack.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from trainer.learn.engine import TrainRow
from trainer.learn.loss import token_weights
from trainer.learn.packed import Pack, pack_sequences
from trainer.learn.ranks import OneRank, Ranks, share


@dataclass(frozen=True, slots=True)
class RowPack:
    """One forward pass: packed rows and their mask-1 tokens. `before_N` points at the hidden state that predicts each of them.

    `current_N` marks tokens sampled by the weights this update starts from. `has_gradient` is False when no token can move a weight.
    """

    pack: Pack
    before_N: torch.Tensor
    targets_N: torch.Tensor
    sampler_logps_N: torch.Tensor
    advantages_N: torch.Tensor
    weights_N: torch.Tensor
    temperature_N: torch.Tensor
    current_N: torch.Tensor
    has_gradient: bool


def check_rows(rows: Sequence[TrainRow]) -> None:
    """Raise `ValueError` naming the sample when a row's lengths do not align or it has no prompt."""
    for row in rows:
        lengths = {len(row.token_ids), len(row.mask), len(row.sampler_logprobs)}
        if len(lengths) != 1 or not row.prompt_ids:
            raise ValueError(
                f"training row of {row.sample}: {len(row.prompt_ids)} prompt tokens, {len(row.token_ids)} tokens, "
                f"{len(row.mask)} mask entries, {len(row.sampler_logprobs)} log-probs"
            )


def split_minibatches(rows: Sequence[TrainRow], count: int, generator: torch.Generator) -> list[list[TrainRow]]:
    """Cut the rows into at most `count` minibatches of whole samples, shuffled when there is more than one."""
    samples = list(dict.fromkeys((row.role, row.sample) for row in rows))
    count = min(count, len(samples))
    if count <= 1:
        return [list(rows)] if rows else []
    order = torch.randperm(len(samples), generator=generator).tolist()
    place = {samples[sample]: position * count // len(samples) for position, sample in enumerate(order)}
    parts: list[list[TrainRow]] = [[] for _ in range(count)]
    for row in rows:
        parts[place[row.role, row.sample]].append(row)
    return parts


def plan_packs(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Group indices so that each group's lengths sum to at most `budget` (longest first, first group that fits); a longer one is alone."""
    groups: list[list[int]] = []
    room: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        for group, left in enumerate(room):
            if lengths[index] <= left:
                groups[group].append(index)
                room[group] -= lengths[index]
                break
        else:
            groups.append([index])
            room.append(budget - lengths[index])
    return groups


def build_packs(
    rows: Sequence[TrainRow],
    *,
    budget: int,
    rollout: int,
    all_count: bool,
    dtype: torch.dtype,
    device: torch.device,
    ranks: Ranks | None = None,
) -> list[RowPack]:
    """Pack one minibatch; returns this rank's share of the packs, none of them when there are fewer packs than ranks.

    Rows with advantage 0 cannot move a weight and are packed apart, unless `all_count` (KL or entropy terms). Rows without a mask-1 token
    are counted as samples but need no forward pass.
    """
    ranks = ranks or OneRank()
    samples = len({(row.role, row.sample) for row in rows})
    weights = token_weights([sum(row.mask) for row in rows], [row.weight for row in rows], samples)
    packs = []
    for live in (True, False):
        chosen = [i for i, row in enumerate(rows) if any(row.mask) and (all_count or row.advantage != 0.0) == live]
        lengths = [len(rows[i].prompt_ids) + len(rows[i].token_ids) for i in chosen]
        # Smaller packs than the budget allows where every rank would not get one otherwise.
        groups = plan_packs(lengths, min(budget, -(-sum(lengths) // ranks.count)))
        for mine in sorted(share([sum(lengths[i] for i in group) for group in groups], ranks.count)[ranks.index]):
            members = [chosen[i] for i in groups[mine]]
            packs.append(
                _row_pack([rows[i] for i in members], [weights[i] for i in members], rollout, live, dtype, device)
            )
    return packs


def _row_pack(
    rows: Sequence[TrainRow],
    weights: Sequence[float],
    rollout: int,
    live: bool,
    dtype: torch.dtype,
    device: torch.device,
) -> RowPack:
    pack = pack_sequences([_trimmed(row) for row in rows], device=device)
    before: list[int] = []
    columns: dict[str, list[float]] = {
        name: [] for name in ("sampler", "advantage", "weight", "temperature", "current")
    }
    for row, weight, start in zip(rows, weights, pack.bounds[:-1], strict=True):
        kept = [i for i, bit in enumerate(row.mask) if bit]
        before += [start + len(row.prompt_ids) + i - 1 for i in kept]
        columns["sampler"] += [row.sampler_logprobs[i] for i in kept]
        columns["advantage"] += [row.advantage] * len(kept)
        columns["weight"] += [weight] * len(kept)
        columns["temperature"] += [row.temperature] * len(kept)
        columns["current"] += [row.rollout == rollout] * len(kept)
    numbers = {name: torch.tensor(column, dtype=dtype, device=device) for name, column in columns.items()}
    before_N = torch.tensor(before, device=device)
    return RowPack(
        pack=pack,
        before_N=before_N,
        targets_N=pack.token_ids_T[before_N + 1],
        sampler_logps_N=numbers["sampler"],
        advantages_N=numbers["advantage"],
        weights_N=numbers["weight"],
        temperature_N=numbers["temperature"],
        current_N=numbers["current"] > 0,
        has_gradient=live,
    )


def _trimmed(row: TrainRow) -> tuple[int, ...]:
    """The row's tokens up to its last mask-1 token: what comes after it predicts nothing that is trained."""
    last = max(i for i, bit in enumerate(row.mask) if bit)
    return (*row.prompt_ids, *row.token_ids[: last + 1])
