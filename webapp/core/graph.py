"""Nodes of a graph that pages draw, and the places where one feature adds nodes to another's graph (as core/panels.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from django.http import HttpRequest


@dataclass(frozen=True, kw_only=True)
class Node:
    """``kind`` is the word above the title; ``tone`` colours the border: "", good, warn, bad, mark (the subject of the page)."""

    id: str
    kind: str
    title: str
    detail: str = ""
    url: str = ""
    tone: str = ""


@dataclass(kw_only=True)
class Graph:
    """Nodes in the order they are read, and edges (from, to, word on it)."""

    nodes: list[Node] = field(default_factory=list)
    edges: list[tuple[str, str, str]] = field(default_factory=list)
    known: set[str] = field(default_factory=set)

    def add(self, node: Node, *sources: str, word: str = "") -> str:
        """Add the node unless it is there, with an edge from every source; returns its id."""
        if node.id not in self.known:
            self.known.add(node.id)
            self.nodes.append(node)
        for source in sources:
            self.edges.append((source, node.id, word))
        return node.id

    def as_json(self) -> dict[str, Any]:
        """What static/js/graph.js draws."""
        edges = [{"from": source, "to": target, "word": word} for source, target, word in dict.fromkeys(self.edges)]
        return {"nodes": [asdict(node) for node in self.nodes], "edges": edges}


#: Adds nodes about the subject; the third argument is the id of the subject's own node.
Extender = Callable[[HttpRequest, Graph, Any, str], None]
_EXTENDERS: dict[str, list[Extender]] = {}


def extend_graph(place: str, extender: Extender) -> None:
    """Have ``extender`` add nodes to the graph of that name. Adding it twice changes nothing."""
    extenders = _EXTENDERS.setdefault(place, [])
    if extender not in extenders:
        extenders.append(extender)


def extenders_of(place: str) -> Sequence[Extender]:
    """In the order they came."""
    return tuple(_EXTENDERS.get(place, ()))
