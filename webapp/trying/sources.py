"""Whose environments a session plays: those of the checkpoint's run, of any other run, or of a pool."""

from __future__ import annotations

from dataclasses import dataclass

from django.apps import apps
from django.http import Http404

from webapp.environments.models import Environment
from webapp.environments.selectors import access_environment
from webapp.runs.compare import run_named
from webapp.runs.errors import ActRefused
from webapp.runs.models import Run
from webapp.runs.selectors import access_run
from webapp.runs.storable import storable_text

ENVIRONMENTS_LISTED = 200
SUGGESTED = 30
_POOL = "pool "


@dataclass(frozen=True, kw_only=True)
class Offered:
    """An environment that can be chosen; ``value`` names it in a form."""

    value: str
    environment: Environment


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where the environments on offer come from. ``text`` names it in an address, "" for the checkpoint's own run."""

    text: str
    title: str
    offered: list[Offered]
    missing: str = ""  # what was asked for and is not there


def source_of(*, run: Run, text: str) -> Source:
    """The source a person named: nothing, a run's number, address or name, or "pool" and its number or name."""
    wanted = storable_text(text).strip()[:200]
    if not wanted:
        return _of_run(run, run)
    if wanted.lower().startswith(_POOL):
        found = _of_pool(run, wanted[len(_POOL) :].strip())
        if found is not None:
            return found
    other = run_named(text=wanted)
    if other is not None:
        return _of_run(run, other)
    own = _of_run(run, run)
    return Source(text="", title=own.title, offered=own.offered, missing=wanted)


def suggestions(*, run: Run) -> list[tuple[str, str]]:
    """What can be named, newest first, with the name people gave it."""
    runs = Run.objects.filter(deleted_at=None, archived_at=None).exclude(pk=run.pk).order_by("-id")[:SUGGESTED]
    pools = (
        apps.get_model("pools", "Pool").objects.order_by("-id")[:SUGGESTED] if apps.is_installed("webapp.pools") else []
    )
    return [*((one.slug or str(one.pk), one.name) for one in runs), *((f"{_POOL}{one.pk}", one.name) for one in pools)]


def chosen_environment(*, run: Run, value: str) -> Environment:
    """The environment of a form's ``value``: a key of the run, or another run's number, a slash and a key. Raises ActRefused, Http404."""
    number, slash, key = value.partition("/")
    if not slash:
        return access_environment(run=run, key=value)
    if not (number.isascii() and number.isdecimal() and len(number) < 12):
        raise Http404("There is no such environment.")
    other = access_run(run_id=int(number))
    if other.deleted_at is not None:
        raise ActRefused(f"{other} has been deleted; restore it to play its environments.")
    return access_environment(run=other, key=key)


def value_of(*, run: Run, environment: Environment) -> str:
    """How a form of the run's pages names the environment."""
    return environment.key if environment.run_id == run.pk else f"{environment.run_id}/{environment.key}"


def _of_run(run: Run, other: Run) -> Source:
    rows = Environment.objects.filter(run=other, superseded=False).defer("code").order_by("-rollout", "slot")
    offered = [Offered(value=value_of(run=run, environment=one), environment=one) for one in rows[:ENVIRONMENTS_LISTED]]
    text = "" if other.pk == run.pk else other.slug or str(other.pk)
    return Source(text=text, title=f"run {other.name}", offered=offered)


def _of_pool(run: Run, named: str) -> Source | None:
    if not apps.is_installed("webapp.pools"):
        return None
    pools = apps.get_model("pools", "Pool").objects.order_by("-id")
    is_number = named.isascii() and named.isdecimal() and len(named) < 12
    pool = (pools.filter(pk=int(named)).first() if is_number else None) or pools.filter(name__iexact=named).first()
    if pool is None:
        return None
    rows = Environment.objects.filter(pool_items__pool=pool, run__deleted_at=None).defer("code").select_related("run")
    offered = [
        Offered(value=value_of(run=run, environment=one), environment=one)
        for one in rows.order_by("pool_items__id")[:ENVIRONMENTS_LISTED]
    ]
    return Source(text=f"{_POOL}{pool.pk}", title=f"pool {pool.name}", offered=offered)
