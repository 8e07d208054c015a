"""Several learner processes as one: every rank is given the same rows, works on its share of them, and sums are added over all ranks.

Because a token's weight is fixed by the whole minibatch before the rows are shared out, adding the ranks' sums gives the loss, gradient and
metrics of one process, whatever the number of ranks. Nothing is averaged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import torch


class Ranks(Protocol):
    """Which rank this process is, and sums over all of them."""

    index: int
    count: int

    def add(self, tensors: Iterable[torch.Tensor]) -> None:
        """Replace each tensor, in place, by its sum over all ranks. Every rank calls it with the same shapes in the same order."""

    def largest(self, tensor: torch.Tensor) -> None:
        """Replace a tensor, in place, by its element-wise maximum over all ranks."""


class OneRank(Ranks):
    """A single process."""

    def __init__(self) -> None:
        self.index, self.count = 0, 1

    def add(self, tensors: Iterable[torch.Tensor]) -> None:
        """Nothing to add."""

    def largest(self, tensor: torch.Tensor) -> None:
        """Nothing to compare with."""


class DistributedRanks(Ranks):
    """The processes of torch's default process group: initialised, and with backends for CPU tensors and for the model's device."""

    def __init__(self) -> None:
        self.index, self.count = torch.distributed.get_rank(), torch.distributed.get_world_size()

    def add(self, tensors: Iterable[torch.Tensor]) -> None:
        """See `Ranks`. One message for all tensors of a type: many small ones cost their latency."""
        by_type: dict[torch.dtype, list[torch.Tensor]] = {}
        for tensor in tensors:
            by_type.setdefault(tensor.dtype, []).append(tensor)
        for group in by_type.values():
            flat = torch.cat([tensor.reshape(-1) for tensor in group])
            torch.distributed.all_reduce(flat, op=torch.distributed.ReduceOp.SUM)
            for tensor, part in zip(group, torch.split(flat, [t.numel() for t in group]), strict=True):
                tensor.copy_(part.view_as(tensor))

    def largest(self, tensor: torch.Tensor) -> None:
        torch.distributed.all_reduce(tensor, op=torch.distributed.ReduceOp.MAX)


def share(costs: Sequence[int], count: int) -> list[list[int]]:
    """Share out items over `count` ranks, the costliest first to the rank with least; indices per rank, some empty if there are too few."""
    shares: list[list[int]] = [[] for _ in range(count)]
    loads = [0] * count
    for index in sorted(range(len(costs)), key=lambda i: -costs[i]):
        rank = loads.index(min(loads))
        shares[rank].append(index)
        loads[rank] += costs[index]
    return shares
