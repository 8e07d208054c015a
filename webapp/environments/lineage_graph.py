"""An environment's lineage as a graph: documents and memory parents, attempts, gates, hint, episodes, regret, memory, children.

Every list is bounded; what is left out stands as a node that says how many. Flags and pools add theirs (core/graph.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest
from django.urls import reverse

from webapp.core.graph import Graph, Node, extenders_of
from webapp.core.hostile import plain
from webapp.core.templatetags.numbers import interval, num
from webapp.environments.models import Candidate, Environment, MemoryRecord
from webapp.environments.selectors import Measured
from webapp.environments.selectors_lineage import Kin

PLACE = "environment_lineage"
TITLE_CHARACTERS = 34
DETAIL_CHARACTERS = 60
ATTEMPTS_DRAWN = 12
KIN_DRAWN = 40  # in each direction


@dataclass(frozen=True, kw_only=True)
class Life:
    """What the lineage page has read about an environment."""

    environment: Environment
    attempts: Sequence[Candidate]
    stages: Sequence[dict[str, Any]]
    measured: Measured
    memory: MemoryRecord | None
    ancestors: Sequence[Kin]
    descendants: Sequence[Kin]


def lineage_graph(*, request: HttpRequest, life: Life) -> Graph:
    """The graph of one life."""
    graph = Graph()
    run_id = life.environment.run_id
    sources = _sources(graph, run_id, life)
    written = _attempts(graph, run_id, life, sources)
    subject = _judged(graph, life, written)
    for extender in extenders_of(PLACE):
        extender(request, graph, life.environment, subject)
    return graph


def _sources(graph: Graph, run_id: int, life: Life) -> list[str]:
    """Document and memory parents, with their own parents before them; ids of those that the prompt showed."""
    environment, shown = life.environment, []
    if environment.document is not None:
        url = reverse("runs:document", args=[run_id, environment.document_id])
        title = _short(environment.document.title or environment.document_key or "", TITLE_CHARACTERS)
        shown.append(
            graph.add(
                Node(id="document", kind="document", title=title, detail=plain(environment.document_key or ""), url=url)
            )
        )
    left = [KIN_DRAWN]
    for kin in life.ancestors:
        added = _ancestor(graph, run_id, kin, left)
        if added:
            shown.append(added)
    _say_left(graph, life.ancestors, left, "ancestors")
    return shown


def _ancestor(graph: Graph, run_id: int, kin: Kin, left: list[int]) -> str:
    if left[0] <= 0:
        return ""
    left[0] -= 1
    own = graph.add(_kin_node(run_id, kin))
    for parent in kin.kin:
        above = _ancestor(graph, run_id, parent, left)
        if above:
            graph.edges.append((above, own, _role(parent)))
    return own


def _attempts(graph: Graph, run_id: int, life: Life, sources: Sequence[str]) -> list[str]:
    """Design attempts in their order; the first is fed by what the prompt showed, each next one follows a rejection."""
    previous = list(sources)
    for index, one in enumerate(life.attempts[:ATTEMPTS_DRAWN]):
        url = f"{reverse('runs:candidate', args=[run_id, one.key])}?attempt={one.attempt}"
        verdict = "accepted" if one.accepted else f"rejected at {plain(one.failed_stage or 'an unknown gate')}"
        detail = verdict if one.accepted or not one.reason else _short(f"{verdict}: {one.reason}", DETAIL_CHARACTERS)
        node = Node(
            id=f"attempt-{one.pk}", kind="design attempt", title=_short(one.key, TITLE_CHARACTERS), detail=detail, url=url,
            tone="" if one.accepted else "bad",
        )  # fmt: skip
        graph.add(node, *previous, word="" if index == 0 else "again")
        previous = [node.id]
    if len(life.attempts) > ATTEMPTS_DRAWN:
        more = len(life.attempts) - ATTEMPTS_DRAWN
        previous = [graph.add(Node(id="attempts-more", kind="design attempt", title=f"{more} more"), *previous)]
    return previous


def _judged(graph: Graph, life: Life, before: Sequence[str]) -> str:
    """Gates, the environment itself, its hint, episodes, regret, memory and children. The id of the environment's node."""
    environment, measured, run_id = life.environment, life.measured, life.environment.run_id
    passed = sum(stage.get("outcome") == "passed" for stage in life.stages)
    gates = graph.add(
        Node(id="gates", kind="gates", title=f"{passed} of {len(life.stages)} passed" if life.stages else "no record"), *before
    )  # fmt: skip
    page = reverse("runs:environment", args=[run_id, environment.key])
    if environment.superseded:
        page = f"{page}?attempt={environment.attempt}"
    subject = graph.add(
        Node(
            id=f"environment-{environment.key}", kind="environment", title=_short(environment.class_name, TITLE_CHARACTERS),
            detail=f"{plain(environment.key)} · {environment.state}", url=page, tone="mark",
        ),
        gates,
    )  # fmt: skip
    tone = {"ok": "", "leaky": "warn", "none": "warn"}.get(environment.hint_state, "")
    word = {"ok": "written", "leaky": "leaky", "none": "no hint"}.get(environment.hint_state, "not written yet")
    text = _short(environment.hint_text or environment.hint_reason or "", DETAIL_CHARACTERS)
    hint = graph.add(Node(id="hint", kind="hint", title=word, detail=text, url=page, tone=tone), subject)
    episodes = f"{reverse('runs:episodes', args=[run_id])}?environment={environment.key}"
    arms = [
        graph.add(
            Node(id=f"episodes-{arm}", kind=f"{arm} episodes", title=f"win rate {num(rate)}", detail=f"{count} with a reward",
                 url=f"{episodes}&arm={arm}"),
            source,
        )
        for arm, rate, count, source in (
            ("unhinted", measured.win_unhinted, measured.unhinted_n, subject),
            ("hinted", measured.win_hinted, measured.hinted_n, hint),
        )
    ]  # fmt: skip
    point = measured.regret
    if point is None:
        said, why = "not measured yet", ""
    elif point.regret is None:
        said, why = "none", "no hint" if point.state == "no_hint" else plain(point.state)
    else:
        said, why = str(interval(point.regret, point.standard_error)), "hinted − unhinted, ± standard error"
    regret = graph.add(
        Node(id="regret", kind="regret", title=said, detail=why, url=reverse("runs:regret", args=[run_id])), *arms
    )
    _afterwards(graph, life, regret)
    return subject


def _afterwards(graph: Graph, life: Life, regret: str) -> None:
    run_id, memory = life.environment.run_id, life.memory
    if memory is None:
        kept = graph.add(Node(id="memory", kind="memory", title="never entered"), regret)
    else:
        gone = memory.removed_rollout is not None
        detail = (
            f"evicted in rollout {memory.removed_rollout}: {plain(memory.removed_reason)}" if gone else "still there"
        )
        node = Node(
            id="memory", kind="memory", title=f"entered in rollout {memory.rollout}", detail=_short(detail, DETAIL_CHARACTERS),
            url=reverse("runs:memory", args=[run_id]), tone="warn" if gone else "",
        )  # fmt: skip
        kept = graph.add(node, regret)
    left = [KIN_DRAWN]
    for kin in life.descendants:
        _descendant(graph, run_id, kin, kept, left)
    _say_left(graph, life.descendants, left, "children", kept)


def _descendant(graph: Graph, run_id: int, kin: Kin, source: str, left: list[int]) -> None:
    if left[0] <= 0:
        return
    left[0] -= 1
    own = graph.add(_kin_node(run_id, kin), source, word=_role(kin))
    for child in kin.kin:
        _descendant(graph, run_id, child, own, left)


def _kin_node(run_id: int, kin: Kin) -> Node:
    environment = kin.environment
    if environment is None:
        return Node(
            id=f"environment-{kin.key}", kind="environment", title=_short(kin.key, TITLE_CHARACTERS), detail="no record"
        )
    return Node(
        id=f"environment-{kin.key}", kind="environment", title=_short(environment.class_name, TITLE_CHARACTERS),
        detail=f"{plain(kin.key)} · rollout {environment.rollout}", url=reverse("runs:lineage", args=[run_id, environment.key]),
        tone="bad" if environment.state in ("quarantined", "barred") else "",
    )  # fmt: skip


def _role(kin: Kin) -> str:
    """What stands on the edge; an example is the usual thing and stays unsaid."""
    return "" if kin.role == "example" else kin.role


def _say_left(graph: Graph, tree: Sequence[Kin], left: list[int], word: str, *sources: str) -> None:
    """A node for those that were not drawn."""
    more = _count(tree) - (KIN_DRAWN - left[0])
    if more > 0:
        graph.add(Node(id=f"more-{word}", kind=word, title=f"{more} more", detail="in the list below"), *sources)


def _count(tree: Sequence[Kin]) -> int:
    return sum(1 + _count(kin.kin) for kin in tree)


def _short(text: str, characters: int) -> str:
    cleaned = " ".join(plain(text).split())
    return cleaned if len(cleaned) <= characters else f"{cleaned[: characters - 1]}…"
