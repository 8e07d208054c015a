"""People, a run taken in by the real ingest, and a trainer's answers written as the trainer writes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.pages.conftest import as_role, ingested, operator, run, viewer
from tests.review.trainer import answer_command

__all__ = ["as_role", "ingested", "operator", "run", "viewer"]


@pytest.fixture
def person(as_role: Callable[[str], Any]) -> Callable[[str], Any]:
    """``person("reviewer")``: the user behind the client of that role."""

    def find(role: str) -> Any:
        from webapp.accounts.models import User

        as_role(role)
        return User.objects.get(username=f"{role}-person")

    return find


@pytest.fixture
def environment(run: Any) -> Any:
    """An environment with a hint that holds."""
    return run.environments.filter(rollout=0, hint_state="ok").first()


@pytest.fixture
def kind(db: None) -> Callable[[str], Any]:
    """A seeded kind by its key."""

    def find(key: str) -> Any:
        from webapp.review.models import FlagKind

        return FlagKind.objects.get(key=key)

    return find


@pytest.fixture
def trainer_says() -> Callable[..., None]:
    """``trainer_says(run, command, rollout=5, more=(…,))``."""
    return answer_command


@pytest.fixture
def people(person: Callable[[str], Any]) -> list[Any]:
    """Three reviewers."""
    from django.contrib.auth.models import Group

    from webapp.accounts.models import User

    group = Group.objects.get_or_create(name="reviewer")[0]
    made = [User.objects.create_user(name) for name in ("ana", "ben", "cem")]
    for one in made:
        one.groups.add(group)
    return made


@pytest.fixture
def queue(run: Any, people: list[Any]) -> Callable[..., Any]:
    """``queue(items=2, reviewers=2)``: every environment of a run is an item; only the first ``items`` stay."""

    def make(items: int = 3, reviewers: int = 1, blind: bool = True, **rules: Any) -> Any:
        from webapp.review import services_queues
        from webapp.review.models import QueueItem
        from webapp.review.services_queues import Rules

        chosen = Rules(signals=(), threshold=0.0, reviewers_per_item=reviewers, blind=blind, **rules)
        made = services_queues.create_queue(actor=people[0], run_id=run.pk, name="all", rules=chosen)
        services_queues.fill_queue(queue_id=made.pk)
        surplus = made.items.order_by("-score", "id").values_list("pk", flat=True)[items:]
        QueueItem.objects.filter(pk__in=list(surplus)).delete()
        return made

    return make
