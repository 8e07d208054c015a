"""Filters in the address: menus to choose from, and chips of what is chosen, each a link to the list without it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.http import QueryDict


@dataclass(frozen=True, kw_only=True)
class FilterMenu:
    """A filter of a list: query parameter, label, and the values that occur."""

    name: str
    label: str
    values: Sequence[str]
    words: dict[str, str] | None = None  # value -> what is shown for it

    def bound(self, query: QueryDict) -> dict[str, Any]:
        """For templates: every value with its address and whether it is chosen. Choosing goes back to the first page."""
        chosen = str(query.get(self.name, ""))
        words = self.words or {}
        return {
            "label": self.label,
            "chosen": words.get(chosen, chosen),
            "options": [
                {"text": words.get(value, value), "url": _address(query, self.name, value), "active": value == chosen}
                for value in self.values
            ],
        }


def chosen_chips(query: QueryDict, names: Sequence[str], words: dict[str, str] | None = None) -> list[dict[str, str]]:
    """The filters in force: text, and the address of the list without that one."""
    chosen = {name: str(query.get(name, "")) for name in names}
    return [
        {
            "name": "search" if name == "q" else name,
            "text": (words or {}).get(value, value),
            "url": _address(query, name, ""),
        }
        for name, value in chosen.items()
        if value
    ]


def _address(query: QueryDict, name: str, value: str) -> str:
    changed = query.copy()
    changed.pop("after", None)
    changed.pop(name, None)
    if value:
        changed[name] = value
    return f"?{changed.urlencode()}"
