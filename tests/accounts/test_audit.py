"""The audit log: what is written, what cannot break it, and paging through it."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from django.core.exceptions import BadRequest
from django.db import transaction
from django.test import Client

from webapp.accounts.audit import record
from webapp.accounts.models import AuditEntry
from webapp.core.pagination import decode_cursor, encode_cursor

pytestmark = pytest.mark.django_db


def test_hostile_names_and_details_are_stored_readably(person: Callable[..., Any]) -> None:
    ana = person("ana")
    entry = record(
        actor=ana,
        action="run.named",
        target=ana,
        label="nul\x00 lone\udc00 " + "x" * 300,
        detail={"k\x00": ["v\x00", 1, None, True]},
    )
    entry.refresh_from_db()
    assert entry.object_label.startswith("nul␀ lone? x")
    assert len(entry.object_label) == 200
    assert entry.detail == {"k␀": ["v␀", 1, None, True]}
    assert (entry.object_type, entry.object_id) == ("accounts.user", str(ana.pk))


def test_an_entry_disappears_with_the_act_that_failed(person: Callable[..., Any]) -> None:
    with pytest.raises(RuntimeError), transaction.atomic():
        record(actor=person("ana"), action="run.stopped")
        raise RuntimeError
    assert not AuditEntry.objects.filter(action="run.stopped").exists()


def test_the_machine_itself_is_called_system_and_a_deleted_persons_name_stays(person: Callable[..., Any]) -> None:
    assert record(actor=None, action="run.lost").actor_name == "system"
    ana = person("ana")
    entry = record(actor=ana, action="run.stopped")
    ana.delete()
    entry.refresh_from_db()
    assert (entry.actor, entry.actor_name) == (None, "ana")


def test_paging_shows_every_entry_once_although_times_are_equal(as_role: Callable[[str], Client]) -> None:
    client = as_role("admin")
    AuditEntry.objects.all().delete()
    moment = datetime(2026, 11, 29, 12, 0, 0, 123456, tzinfo=UTC)
    AuditEntry.objects.bulk_create(AuditEntry(at=moment, actor_name="a", action=f"act.{n:03}") for n in range(120))
    seen: list[str] = []
    address = "/accounts/audit/"
    for _ in range(3):
        answer = client.get(address)
        page = answer.context["page"]
        seen += [entry.action for entry in page.rows]
        address = f"/accounts/audit/?after={page.next_cursor}"
    assert page.next_cursor == ""
    assert seen == [f"act.{n:03}" for n in reversed(range(120))]


@pytest.mark.parametrize(
    "cursor",
    ["x", "%01", "W10", "WyJhIiwiYiJd", "W251bGwsbnVsbF0", "bnVsbA", "A" * 5000, "WyIyMDI2LTEzLTAxIiwxXQ",
     encode_cursor(["0001-01-01T00:00:00+23:59", 5]), encode_cursor(["9999-12-31T23:59:59-00:01", 5])],
)  # fmt: skip
def test_a_damaged_cursor_is_a_400_with_a_sentence(as_role: Callable[[str], Client], cursor: str) -> None:
    answer = as_role("admin").get(f"/accounts/audit/?after={cursor}")
    assert answer.status_code == 400
    assert "page address is damaged" in answer.content.decode()


@pytest.mark.parametrize("text", ["a\x00", "\ud800"])
def test_a_cursor_with_a_text_that_no_database_takes_is_damaged(text: str) -> None:
    with pytest.raises(BadRequest, match="page address is damaged"):
        decode_cursor(encode_cursor([text]), length=1)
