"""The command palette (Ctrl+K): where a person can go, by what they type. Features add pages and finders from ``AppConfig.ready``.

A feature's folder deleted, its entries are gone. A page is listed for whoever its own view would let in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any

from django.http import HttpRequest, QueryDict
from django.urls import resolve, reverse

from webapp.accounts.roles import Role, has_role
from webapp.core.context_processors import navigation

#: Lines shown for a text; without one everything that is no search result is shown.
MAX_ENTRIES = 12
MAX_CHARACTERS = 100
_MAX_ID_DIGITS = 18  # of a 64-bit number, whatever the digits


class Heading(StrEnum):
    """Groups of the list, in their order."""

    THIS_RUN = "This run"
    NEWEST = "Newest runs"
    ACTIONS = "Actions"
    PAGES = "Pages"
    ENVIRONMENTS = "Environments of this run"
    RUNS = "Runs"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One line, which leads to ``url`` or opens the page's dialog with the id ``opens``. A model may have written its texts."""

    label: str
    url: str = ""
    opens: str = ""
    detail: str = ""
    status: str = ""  # a state, shown as a chip
    keys: str = ""  # keys that lead there from every page, "g r"
    words: str = ""  # not shown, but found by


@dataclass(frozen=True, kw_only=True)
class Place:
    """A page that needs no search. ``url_name`` takes no arguments; its view states the role it needs."""

    label: str
    url_name: str
    heading: Heading = Heading.PAGES
    words: str = ""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What was typed ("" at first) and the run on whose page."""

    text: str
    run_id: int | None


@dataclass(frozen=True, kw_only=True)
class Group:
    """Entries under one heading, the best first."""

    heading: Heading
    entries: list[Entry]


@dataclass(frozen=True, kw_only=True)
class Found:
    """What is shown; ``is_cut``: more would match."""

    groups: list[Group]
    total: int
    is_cut: bool


#: Finds entries for what was asked, at most MAX_ENTRIES + 1 when they come from the database.
Finder = Callable[[Asked], Sequence[Entry]]
_PLACES: list[Place] = []
_FINDERS: list[tuple[Heading, Finder]] = []


def add_places(*places: Place) -> None:
    """Have these pages listed. Adding one twice changes nothing."""
    _PLACES.extend(place for place in places if place not in _PLACES)


def add_finder(heading: Heading, finder: Finder) -> None:
    """Have what ``finder`` finds listed under ``heading``. Adding one twice changes nothing."""
    if (heading, finder) not in _FINDERS:
        _FINDERS.append((heading, finder))


def asked_of(query: QueryDict) -> Asked:
    """``?q=`` and ``?run=``; what is no number of a run counts as none."""
    run = query.get("run", "")
    is_number = run.isascii() and run.isdecimal() and len(run) <= _MAX_ID_DIGITS
    text = " ".join(query.get("q", "").replace("\x00", " ").split())
    return Asked(text=text[:MAX_CHARACTERS], run_id=int(run) if is_number else None)


def find(*, request: HttpRequest, asked: Asked) -> Found:
    """Everything that matches, the best of each group first; with a text at most MAX_ENTRIES, groups with better matches first."""
    listed = [(heading, entry) for heading in Heading for entry in _under(heading, request, asked)]
    if not asked.text:
        return _grouped(listed, is_cut=False)
    listed.sort(key=lambda pair: rank(asked.text, pair[1]))
    return _grouped(listed[:MAX_ENTRIES], is_cut=len(listed) > MAX_ENTRIES)


def _under(heading: Heading, request: HttpRequest, asked: Asked) -> Iterable[Entry]:
    yield from matching(asked.text, _pages(heading, request))
    for where, finder in _FINDERS:
        if where == heading:
            yield from finder(asked)


def _pages(heading: Heading, request: HttpRequest) -> Iterable[Entry]:
    if heading == Heading.PAGES:
        for item in navigation(request):
            yield Entry(label=item["label"], url=item["url"], keys=f"g {item['key']}")
    for place in _PLACES:
        if place.heading == heading and has_role(request.user, _needed(place.url_name)):
            yield Entry(label=place.label, url=reverse(place.url_name), words=place.words)
    if heading == Heading.ACTIONS:
        yield Entry(label="Keyboard shortcuts", opens="keys", keys="?", words="keys help sheet")


@lru_cache
def _needed(url_name: str) -> Role:
    view: Any = resolve(reverse(url_name)).func
    role: Role = view.required_role
    return role


def matching(text: str, entries: Iterable[Entry]) -> list[Entry]:
    """The entries in which every word of ``text`` occurs; all of them for no text."""
    words = text.lower().split()
    return [entry for entry in entries if all(word in f"{entry.label} {entry.words}".lower() for word in words)]


def rank(text: str, entry: Entry) -> int:
    """0: label or detail begins with the text; 1: each word of it begins a word there; 2: it occurs there; 3: found otherwise."""
    return min(_rank(text.lower(), shown.lower()) for shown in (entry.label, entry.detail))


def _rank(text: str, shown: str) -> int:
    if shown.startswith(text):
        return 0
    if all(any(part.startswith(word) for part in shown.split()) for word in text.split()):
        return 1
    return 2 if text in shown else 3


def _grouped(listed: Sequence[tuple[Heading, Entry]], *, is_cut: bool) -> Found:
    groups: dict[Heading, list[Entry]] = {}
    for heading, entry in listed:
        groups.setdefault(heading, []).append(entry)
    return Found(
        groups=[Group(heading=heading, entries=entries) for heading, entries in groups.items()],
        total=len(listed),
        is_cut=is_cut,
    )
