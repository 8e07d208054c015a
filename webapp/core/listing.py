"""Columns and filters that one feature adds to a list of another; the list's feature knows nothing about them (as core/panels.py).

A feature adds from its ``AppConfig.ready``. Its folder deleted, the list has its own columns and filters only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet
from django.http import QueryDict
from django.utils.safestring import SafeString


@dataclass(frozen=True, kw_only=True)
class Column:
    """``cells`` gives the safe HTML of each row that has something to show, by primary key, in a fixed number of queries."""

    title: str
    cells: Callable[[Sequence[Any]], Mapping[int, SafeString]]


@dataclass(frozen=True, kw_only=True)
class Filter:
    """``values`` are what can be chosen in the list of ``subject`` (value -> words); ``narrow`` keeps the rows of a value."""

    name: str  # query parameter
    label: str
    values: Callable[[Any], Mapping[str, str]]
    narrow: Callable[[QuerySet[Any], str], QuerySet[Any]]


_COLUMNS: dict[str, list[Column]] = {}
_FILTERS: dict[str, list[Filter]] = {}


def add_column(table: str, column: Column) -> None:
    """Show the column in the list, after what others added. Adding it twice changes nothing."""
    columns = _COLUMNS.setdefault(table, [])
    if column not in columns:
        columns.append(column)


def add_filter(table: str, added: Filter) -> None:
    """Offer the filter on the list. Adding it twice changes nothing."""
    filters = _FILTERS.setdefault(table, [])
    if added not in filters:
        filters.append(added)


def added_filters(table: str) -> Sequence[Filter]:
    """Filters of other features, in the order they came."""
    return tuple(_FILTERS.get(table, ()))


def chosen_filters(table: str, query: QueryDict) -> tuple[tuple[str, str], ...]:
    """The added filters that an address sets, as (name, value)."""
    asked = ((one.name, query.get(one.name, "").strip()[:80]) for one in added_filters(table))
    return tuple((name, value) for name, value in asked if value)


def narrowed(table: str, rows: QuerySet[Any], chosen: Sequence[tuple[str, str]]) -> QuerySet[Any]:
    """The rows that the chosen filters leave."""
    values = dict(chosen)
    for one in added_filters(table):
        if one.name in values:
            rows = one.narrow(rows, values[one.name])
    return rows


def added_cells(table: str, rows: Sequence[Any]) -> list[tuple[str, Mapping[int, SafeString]]]:
    """Of each added column its title and cells."""
    return [(column.title, column.cells(rows)) for column in _COLUMNS.get(table, ())]
