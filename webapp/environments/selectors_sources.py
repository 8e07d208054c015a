"""Reading memory, corpus and regret of one run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import Count, F, Q
from django.http import Http404

from webapp.core.pagination import Page, keyset_page
from webapp.environments.models import CorpusDocument, Environment, MemoryRecord, RegretPoint
from webapp.runs.models import Run

PAGE_ROWS = 50
Z_95 = 1.96  # half width of a 95 % interval in standard errors


def list_memory(
    *,
    run: Run,
    skill: str = "",
    present: bool | None = None,
    with_snippets: bool = False,
    cursor: str = "",
    size: int = PAGE_ROWS,
) -> Page[MemoryRecord]:
    """Memory records, newest first; ``present`` narrows to those still there (or gone)."""
    rows = MemoryRecord.objects.filter(run=run, superseded=False)
    if not with_snippets:
        rows = rows.defer("snippet")
    if skill:
        rows = rows.filter(skill=skill)
    if present is not None:
        rows = rows.filter(removed_rollout__isnull=present)
    return keyset_page(rows, order=("-id",), cursor=cursor, size=size)


def uses_of(*, run: Run, keys: Sequence[str]) -> dict[str, list[str]]:
    """For each memory record the keys of environments whose prompt showed it."""
    uses: dict[str, list[str]] = {key: [] for key in keys}
    rows = (
        Environment.objects.filter(run=run, superseded=False)
        .exclude(examples=[], counter_examples=[])
        .order_by("rollout", "slot")
    )
    for key, examples, counters in rows.values_list("key", "examples", "counter_examples"):
        for used in {*examples, *counters} & uses.keys():
            uses[used].append(key)
    return uses


def list_documents(*, run: Run, search: str = "", cursor: str = "", size: int = PAGE_ROWS) -> Page[CorpusDocument]:
    """Documents used, newest first, with ``seeded`` (environments) and ``tried`` (candidates)."""
    rows = CorpusDocument.objects.filter(run=run).defer("text").annotate(
        seeded=Count("environments", filter=Q(environments__superseded=False), distinct=True),
        tried=Count("candidates", filter=Q(candidates__superseded=False), distinct=True),
    )  # fmt: skip
    if search:
        rows = rows.filter(Q(title__icontains=search) | Q(key__icontains=search))
    return keyset_page(rows, order=("-id",), cursor=cursor, size=size)


def access_document(*, run: Run, document_id: int) -> CorpusDocument:
    """The document. Raises Http404."""
    try:
        return CorpusDocument.objects.get(run=run, pk=document_id)
    except CorpusDocument.DoesNotExist as error:
        raise Http404("There is no such document in this run.") from error


def list_regret(*, run: Run, skill: str = "", cursor: str = "", size: int = PAGE_ROWS) -> Page[RegretPoint]:
    """Regret measurements, newest first, each with ``half_width`` of its 95 % interval."""
    rows = (
        RegretPoint.objects.filter(run=run, superseded=False).select_related("environment").defer("environment__code")
    )
    rows = rows.annotate(half_width=F("standard_error") * Z_95)
    if skill:
        rows = rows.filter(skill=skill)
    return keyset_page(rows, order=("-id",), cursor=cursor, size=size)


@dataclass(frozen=True, kw_only=True)
class SkillRegret:
    """Regret of one skill at one regeneration: mean, standard error over environments (None below two), counts by state."""

    rollout: int
    skill: str
    mean: float | None
    standard_error: float | None
    n: int
    states: dict[str, int]


def regret_by_skill(*, run: Run) -> list[SkillRegret]:
    """One row per (rollout, skill), ascending; environments without regret are counted, never averaged as zero."""
    groups: dict[tuple[int, str], tuple[list[float], dict[str, int]]] = {}
    rows = RegretPoint.objects.filter(run=run, superseded=False, rollout__isnull=False).order_by("rollout", "skill")
    for rollout, skill, state, regret in rows.values_list("rollout", "skill", "state", "regret"):
        assert rollout is not None  # filtered above
        values, states = groups.setdefault((rollout, skill), ([], {}))
        states[state] = states.get(state, 0) + 1
        if regret is not None:
            values.append(regret)
    return [
        SkillRegret(
            rollout=rollout,
            skill=skill,
            mean=_mean(values),
            standard_error=_standard_error(values),
            n=len(values),
            states=states,
        )
        for (rollout, skill), (values, states) in groups.items()
    ]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _standard_error(values: Sequence[float]) -> float | None:
    if len(values) < 2:
        return None
    mean = sum(values) / len(values)
    variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return float((variance / len(values)) ** 0.5)
