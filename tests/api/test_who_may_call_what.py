"""Role × operation, with a session and with a token; what is not allowed changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from tests.api.addresses import CREATED, NEEDS, REFUSED, call, operation

pytestmark = pytest.mark.django_db
ORDER = ("viewer", "reviewer", "operator", "admin")
SCOPES = ("read", "review", "control", "admin")


def expected(name: str, role: str) -> int:
    if role == "anonymous":
        return 401
    if role == "" or ORDER.index(role) < ORDER.index(NEEDS[name]):
        return 403
    return REFUSED.get(name, CREATED.get(name, 200))


@pytest.mark.parametrize("role", ["anonymous", "", *ORDER])
def test_every_operation_with_a_session(role: str, run: Any, as_role: Callable[[str], Client]) -> None:
    as_role("reviewer")  # whose flag is withdrawn
    client = as_role(role)
    answers = {name: call(client, name, run).status_code for name in NEEDS}
    assert answers == {name: expected(name, role) for name in NEEDS}


@pytest.mark.parametrize("scope", SCOPES)
def test_every_operation_with_a_token_of_an_admin(scope: str, run: Any, call_as: Callable[..., Client]) -> None:
    client = call_as("admin", scope)
    answers = {name: call(client, name, run).status_code for name in NEEDS}
    role = ORDER[SCOPES.index(scope)]
    wanted = {name: expected(name, role) for name in NEEDS}
    if scope == "review":
        wanted["flags_withdraw"] = 409  # somebody else's flag: an operator's affair
    assert answers == wanted


@pytest.mark.parametrize("scope", ["read", "review"])
def test_a_token_of_too_small_a_scope_changes_nothing(scope: str, run: Any, call_as: Callable[..., Client]) -> None:
    from webapp.runs.models import Run

    client = call_as("admin", scope)
    answer = call(client, "runs_create", run)
    assert answer.json()["detail"] == (
        f"This needs the role operator. An admin can give it to you. The token's scope is {scope}."
    )
    call(client, "runs_act", run)
    call(client, "environments_judge", run)
    assert (Run.objects.count(), run.commands.count()) == (1, 0)


def test_a_review_token_of_an_operator_proposes_and_a_control_token_acts(
    run: Any, call_as: Callable[..., Client]
) -> None:
    for scope, state, commands in (("review", "proposed", 0), ("control", "asked", 1)):
        client = call_as("operator", scope)
        _, path, body = operation("flags_place", run)
        answer = client.post(path, {**body, "wish": "quarantine"}, content_type="application/json")
        assert (answer.status_code, answer.json()["state"], run.commands.count()) == (201, state, commands)


def test_the_table_holds_every_operation_of_the_schema_with_its_role() -> None:
    from webapp.api.docs import operations

    assert {one.id: one.role for one in operations()} == NEEDS


def test_changes_with_a_session_need_the_token_of_our_pages(run: Any, operator: Client) -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = operator.cookies
    answer = strict.post(f"/api/v1/runs/{run.pk}/acts/stop/", {}, content_type="application/json")
    assert (answer.status_code, answer["Content-Type"]) == (403, "application/problem+json")
    assert "CSRF" in answer.json()["detail"]
    assert not run.commands.exists()


def test_the_audit_log_names_the_token(run: Any, call_as: Callable[..., Client]) -> None:
    from webapp.accounts.models import AuditEntry

    call(call_as("operator", "control"), "runs_act", run)
    entry = AuditEntry.objects.get(action="run.checkpointed")
    assert (entry.actor_name, entry.detail) == ("operator-person", {"token": "control robot"})


def test_nothing_of_one_run_is_read_under_the_address_of_another(
    run: Any, ingested: Callable[..., Any], viewer: Client
) -> None:
    other = ingested(seed=11)
    for name in ("episodes_transcript", "documents_read"):
        path = operation(name, run)[1].replace(f"/runs/{run.pk}/", f"/runs/{other.pk}/")
        assert viewer.get(path).status_code == 404
