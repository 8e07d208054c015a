"""Keys and values of finished sequences, so that the next turn of a conversation prefills only what is new.

A turn's prompt is everything before it plus one observation; without this store each turn would compute the whole conversation again,
which costs more than the sampling itself. Dropped at every weight update: keys and values belong to the weights that made them.

Shapes: L layers, K key-value heads, T tokens, D head size.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

_BLOCK = 16  # tokens between two places where a stored sequence can be found


@dataclass(frozen=True, slots=True)
class _Entry:
    tokens: tuple[int, ...]
    kv_2LKTD: torch.Tensor


class PrefixStore:
    """Sequences with their keys and values, found by their longest common beginning with a prompt; the least used leave first."""

    def __init__(self, budget_bytes: int) -> None:
        self._budget_bytes = budget_bytes
        self._bytes = 0
        self._next = 0
        self._entries: OrderedDict[int, _Entry] = OrderedDict()
        self._index: dict[int, dict[int, None]] = {}  # name of a beginning -> the entries that have it, oldest first

    @property
    def stored_bytes(self) -> int:
        return self._bytes

    def clear(self) -> None:
        self._entries.clear()
        self._index.clear()
        self._bytes = 0

    def add(self, tokens: Sequence[int], kv_2LKTD: torch.Tensor) -> None:
        """Store a sequence; a stored one that it continues is replaced. One larger than the budget is not kept."""
        size = kv_2LKTD.numel() * kv_2LKTD.element_size()
        if size > self._budget_bytes or len(tokens) < _BLOCK:
            return
        entry = _Entry(tuple(tokens), kv_2LKTD)
        older, shared = self._match(entry.tokens)
        if older is not None and shared == len(self._entries[older].tokens):
            self._drop(older)
        while self._bytes + size > self._budget_bytes:
            self._drop(next(iter(self._entries)))
        number, self._next = self._next, self._next + 1
        self._entries[number] = entry
        self._bytes += size
        for name in _block_names(entry.tokens):
            self._index.setdefault(name, {})[number] = None

    def find(self, tokens: Sequence[int], *, longest: int) -> tuple[torch.Tensor | None, int]:
        """Keys and values of a sequence that shares a beginning with `tokens`, and how many tokens they share, at most `longest`."""
        number, shared = self._match(tuple(tokens[:longest]))
        if number is None:
            return None, 0
        self._entries.move_to_end(number)
        return self._entries[number].kv_2LKTD, shared

    def _match(self, tokens: tuple[int, ...]) -> tuple[int | None, int]:
        """The entry with the longest common beginning of at least a block, as (number, shared tokens)."""
        candidates: dict[int, None] = {}
        shared = 0
        for name in _block_names(tokens):
            if name not in self._index:
                break
            candidates, shared = self._index[name], shared + _BLOCK
        best, most = None, 0
        for number in reversed(candidates):  # the newest of equals
            common = shared + _common(tokens, self._entries[number].tokens, shared)
            if common > most:
                best, most = number, common
        # Names are hashes; the tokens decide.
        if best is None or self._entries[best].tokens[:most] != tokens[:most]:
            return None, 0
        return best, most

    def _drop(self, number: int) -> None:
        entry = self._entries.pop(number)
        self._bytes -= entry.kv_2LKTD.numel() * entry.kv_2LKTD.element_size()
        for name in _block_names(entry.tokens):
            del self._index[name][number]
            if not self._index[name]:
                del self._index[name]


def _common(mine: tuple[int, ...], theirs: tuple[int, ...], start: int) -> int:
    """How many tokens are equal from `start` on."""
    count = 0
    for a, b in zip(mine[start:], theirs[start:], strict=False):
        if a != b:
            break
        count += 1
    return count


def _block_names(tokens: tuple[int, ...]) -> Iterator[int]:
    """A name for every beginning of `tokens` that is a whole number of blocks."""
    name = 0
    for start in range(0, len(tokens) - _BLOCK + 1, _BLOCK):
        name = hash((name, tokens[start : start + _BLOCK]))
        yield name
