"""Environment memory: what the designer is shown of earlier environments (spec 9)."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from trainer.config import MemoryConfig
from trainer.prompts import ShownCounterExample, ShownExample

_POOL_FACTOR = 3
_POOL_MINIMUM = 10
_TOO_EASY = 0.9
_TOO_HARD = 0.1


@dataclass(frozen=True, slots=True)
class MemoryRecord:
    """One environment as the memory keeps it. `regret` is None when it could not be measured."""

    environment: str
    skill: str
    class_name: str
    snippet: str
    success_share: float
    regret: float | None
    rollout: int
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Recall:
    """What one designer prompt shows, with the keys of the environments for its lineage."""

    examples: tuple[MemoryRecord, ...] = ()
    counter_examples: tuple[MemoryRecord, ...] = ()

    def shown_examples(self) -> list[ShownExample]:
        return [ShownExample(r.class_name, r.skill, r.success_share, r.regret, r.snippet) for r in self.examples]

    def shown_counter_examples(self) -> list[ShownCounterExample]:
        return [
            ShownCounterExample(r.class_name, "too easy" if r.success_share > _TOO_EASY else "too hard")
            for r in self.counter_examples
        ]


class Memory:
    """At most `size` records, oldest first out; draws are uniform and come from the generator the caller brings."""

    def __init__(self, config: MemoryConfig) -> None:
        self._config = config
        self.records: list[MemoryRecord] = []
        self.purged: list[MemoryRecord] = []

    def add(self, record: MemoryRecord) -> list[MemoryRecord]:
        """Keep the record (its snippet cut); returns the records that had to leave."""
        cut = record.snippet[: self._config.snippet_chars]
        fields = {f: getattr(record, f) for f in MemoryRecord.__slots__} | {"snippet": cut}
        self.records.append(MemoryRecord(**fields))
        removed = self.records[: -self._config.size]
        self.records = self.records[-self._config.size :]
        return removed

    def remove(self, environment: str) -> bool:
        """Forget an environment for good; False when it was not remembered."""
        found = self._take(environment) is not None
        self.purged = [r for r in self.purged if r.environment != environment]
        return found

    def purge(self, environment: str) -> bool:
        """Show an environment to no designer any more until `restore`; False when it is not remembered.

        Its place is free for another record. As many purged records can be brought back as the memory holds; the oldest leave first.
        """
        record = self._take(environment)
        if record is None:
            return False
        self.purged = sorted([*self.purged, record], key=_age)[-self._config.size :]
        return True

    def restore(self, environment: str) -> list[MemoryRecord]:
        """Put a purged record back where it was; returns the records that had to leave for it.

        Raises `ValueError` when there is none, or when it would be the oldest of a full memory and leave at once.
        """
        record = next((r for r in self.purged if r.environment == environment), None)
        if record is None:
            raise ValueError(f"no purged memory record of {environment} is kept")
        records = sorted([*self.records, record], key=_age)
        removed, kept = records[: -self._config.size], records[-self._config.size :]
        if record in removed:
            raise ValueError(f"the memory is full of records newer than {environment}")
        self.purged.remove(record)
        self.records = kept
        return removed

    def _take(self, environment: str) -> MemoryRecord | None:
        record = next((r for r in self.records if r.environment == environment), None)
        if record is not None:
            self.records.remove(record)
        return record

    def example_pool(self, skill: str, *, count: int) -> list[MemoryRecord]:
        """Records an example can be drawn from: inside the band, the top max(3·count, 10) by regret."""
        low, high = self._config.band_low, self._config.band_high
        usable = [r for r in self.records if r.skill == skill and low <= r.success_share <= high]
        usable.sort(key=lambda r: float("-inf") if r.regret is None else r.regret, reverse=True)
        return usable[: max(_POOL_FACTOR * count, _POOL_MINIMUM)]

    def counter_pool(self, skill: str) -> list[MemoryRecord]:
        """Records that were too easy or too hard."""
        return [
            r for r in self.records if r.skill == skill and (r.success_share > _TOO_EASY or r.success_share < _TOO_HARD)
        ]

    def recall(self, skill: str, *, rng: random.Random) -> Recall:
        """Draw what one designer prompt shows; nothing when the memory is switched off."""
        if not self._config.enabled:
            return Recall()
        examples = _draw(self.example_pool(skill, count=self._config.examples), self._config.examples, rng.sample)
        counters = _draw(self.counter_pool(skill), self._config.counter_examples, rng.sample)
        return Recall(tuple(examples), tuple(counters))

    def state(self) -> list[dict[str, Any]]:
        return [asdict(r) for r in self.records]

    def purged_state(self) -> list[dict[str, Any]]:
        return [asdict(r) for r in self.purged]

    def load_state(self, state: Sequence[Mapping[str, Any]], purged: Sequence[Mapping[str, Any]] = ()) -> None:
        self.records, self.purged = [_from_dict(r) for r in state], [_from_dict(r) for r in purged]


def _from_dict(values: Mapping[str, Any]) -> MemoryRecord:
    return MemoryRecord(**{**values, "tags": tuple(values["tags"])})


def _age(record: MemoryRecord) -> tuple[int, int, str]:
    """Sorts as records were added: by rollout, then by slot (the number at the end of the key, zero-padded to two digits)."""
    return record.rollout, len(record.environment), record.environment


def _draw(
    pool: Sequence[MemoryRecord], count: int, sample: Callable[[Sequence[MemoryRecord], int], list[MemoryRecord]]
) -> list[MemoryRecord]:
    return sample(pool, min(count, len(pool)))
