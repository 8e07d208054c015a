"""Creating runs and acting on them through the API: the trainer's validation, the state machine, pools."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

pytestmark = pytest.mark.django_db
RUNS = "/api/v1/runs/"


def post(client: Client, path: str, body: Any = None) -> Any:
    return client.post(path, {} if body is None else body, content_type="application/json")


def test_a_run_is_created_queued_and_stopped(operator: Client) -> None:
    body = post(operator, RUNS, {
        "preset": "demo", "overrides": {"schedule.rollouts": 3}, "name": "nightly", "tags": ["ci"], "notes": "by a robot", "start": True,
    }).json()  # fmt: skip
    assert (body["status"], body["total_rollouts"], body["tags"], body["notes"]) == ("queued", 3, ["ci"], "by a robot")
    assert (body["not_started"], body["owner"]) == ("", "operator-person")
    assert [run["id"] for run in operator.get("/api/v1/queue/").json()["waiting"]] == [body["id"]]
    stopped = post(operator, f"{RUNS}{body['id']}/acts/stop/", {"reason": "too late"}).json()
    assert stopped["status"] == "stopped"
    again = post(operator, f"{RUNS}{body['id']}/acts/stop/")
    assert (again.status_code, again.json()["code"]) == (409, "refused")
    assert "stop is possible when a run is" in again.json()["detail"]


def test_wrong_settings_are_named_by_the_trainers_own_validation_and_nothing_is_created(operator: Client) -> None:
    from webapp.runs.models import Run

    overrides = {"schedule.rollouts": -1, "optim.learning_rate": "fast"}
    for path in (RUNS, f"{RUNS}dry-run/"):
        answer = post(operator, path, {"preset": "demo", "overrides": overrides})
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid-settings")
        assert {one["path"] for one in answer.json()["problems"]} == set(overrides)
    assert not Run.objects.exists()


@pytest.mark.parametrize(
    ("body", "path", "words"),
    [
        ({}, "", "either preset or parent"), ({"preset": "demo", "parent": 1}, "", "either preset or parent"),
        ({"preset": "demo", "checkpoint": "1"}, "checkpoint", "needs the parent"), ({"preset": "nope"}, "preset", "no preset 'nope'"),
        ({"preset": "demo", "overrides": {"no.such": 1}}, "no.such", "no such setting"),
        ({"preset": "demo", "overrides": {"schedule": {}}}, "schedule", "no such setting"),
        ({"preset": "demo", "overrides": {"description": "a\x00b"}}, "description", "holds a NUL"),
        ({"preset": "demo", "overrides": {"model.path": "a\ud800"}}, "model.path", "holds a NUL or another character"),
        ({"preset": "demo", "overrides": {"corpus.source": "/tmp/\x00"}}, "corpus.source", "holds a NUL"),
        ({"preset": "demo", "tags": ["a\x00"]}, "tags.0", "ull"), ({"preset": "demo", "name": "x" * 200}, "name", "120"),
        ([1], "", "dictionary"),
    ],
)  # fmt: skip
def test_each_wrong_field_is_named(body: Any, path: str, words: str, operator: Client) -> None:
    answer = operator.post(RUNS, json.dumps(body), content_type="application/json")
    assert answer.status_code == 422
    problem = answer.json()["problems"][0]
    assert problem["path"] in (path, path.partition(".")[0])
    assert words in problem["message"]


def test_a_damaged_body_is_a_problem_too(operator: Client) -> None:
    answer = operator.post(RUNS, "{", content_type="application/json")
    assert (answer.status_code, answer["Content-Type"]) == (400, "application/problem+json")
    assert operator.post(RUNS, "a=1", content_type="text/plain").status_code == 415


def test_a_dry_run_says_what_a_run_would_do_and_creates_nothing(operator: Client) -> None:
    from webapp.runs.models import Run

    body = post(operator, f"{RUNS}dry-run/", {"preset": "demo", "overrides": {"schedule.rollouts": 8}}).json()
    schedule = body["config"]["schedule"]
    assert schedule["rollouts"] == 8
    assert body["unhinted"] == schedule["environments"] * schedule["plays"] * 8
    assert (body["obstacles"], Run.objects.count()) == ([], 0)


def test_a_dry_run_refuses_what_creating_would_refuse(operator: Client, tmp_path: Path, settings: Any) -> None:
    from webapp.runs.models import Run

    settings.SPADEWORK_CORPORA_ROOT = str(tmp_path / "corpora")
    body = {"preset": "demo", "overrides": {"corpus.source": str(tmp_path / "elsewhere.txt")}}
    for path in (RUNS, f"{RUNS}dry-run/"):
        answer = post(operator, path, body)
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid-settings")
        (problem,) = answer.json()["problems"]
        assert (problem["path"], "is outside" in problem["message"]) == ("corpus.source", True)
    assert not Run.objects.exists()


@pytest.mark.parametrize(
    ("path", "value"), [("schedule.rollouts", 10**12), ("schedule.rollouts", 10**6), ("seed", 2**63)]
)
def test_a_number_that_no_run_can_hold_is_refused(path: str, value: int, operator: Client) -> None:
    for address in (RUNS, f"{RUNS}dry-run/"):
        answer = post(operator, address, {"preset": "demo", "overrides": {path: value}})
        assert (answer.status_code, [one["path"] for one in answer.json()["problems"]]) == (422, [path])


def test_a_clone_keeps_the_settings_and_a_fork_needs_a_checkpoint_on_the_disk(run: Any, operator: Client) -> None:
    clone = post(operator, RUNS, {"parent": run.pk, "overrides": {"seed": 99}, "name": "again"}).json()
    assert (clone["parent"], clone["seed"], clone["name"], clone["status"]) == (run.pk, 99, "again", "draft")
    assert {**clone["config"], "seed": run.seed} == run.config
    refused = post(operator, RUNS, {"parent": run.pk, "checkpoint": "000003"})
    assert refused.status_code == 409
    assert "no longer on the disk" in refused.json()["detail"]


def test_a_run_that_cannot_start_here_is_kept_as_a_draft_with_the_reason(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    from webapp.runs import configuration

    monkeypatch.setattr(configuration, "gpus", list)
    answer = post(operator, RUNS, {"preset": "games-4b", "start": True})
    assert (answer.status_code, answer.json()["status"]) == (201, "draft")
    assert "needs a CUDA GPU" in answer.json()["not_started"]


def test_pause_is_asked_of_the_trainer_and_listed_among_the_commands(run: Any, operator: Client) -> None:
    assert post(operator, f"{RUNS}{run.pk}/acts/pause/", {"reason": "heat"}).json()["status"] == "pausing"
    (command,) = operator.get(f"{RUNS}{run.pk}/commands/").json()
    assert (command["action"], command["reason"], command["by"], command["accepted"]) == (
        "pause", "heat", "operator-person", None,
    )  # fmt: skip


def test_an_unknown_act_names_those_there_are(run: Any, operator: Client) -> None:
    answer = post(operator, f"{RUNS}{run.pk}/acts/explode/")
    assert answer.status_code == 404
    assert "pause" in answer.json()["detail"]


def test_a_flag_is_placed_and_withdrawn_and_refusals_say_why(run: Any, as_role: Callable[[str], Client]) -> None:
    reviewer = as_role("reviewer")
    environment = run.environments.filter(superseded=False).first()
    path = f"{RUNS}{run.pk}/environments/{environment.key}/flags/"
    kind = reviewer.get("/api/v1/flag-kinds/").json()[0]["key"]
    flag = post(reviewer, path, {"kind": kind, "subject": "lines", "first_line": 2, "severity": "critical"}).json()
    assert (flag["first_line"], flag["last_line"], flag["severity"], flag["state"]) == (2, 2, "critical", "note")
    assert reviewer.get(f"/api/v1/flags/?run={run.pk}").json()["results"] == [flag]
    assert post(reviewer, f"/api/v1/flags/{flag['id']}/withdraw/", {"reason": "no"}).json()["state"] == "withdrawn"
    for body, words in (({"kind": "nope"}, "no kind 'nope'"), ({"kind": kind, "subject": "lines"}, "which lines")):
        answer = post(reviewer, path, body)
        assert (answer.status_code, words in answer.json()["detail"]) == (409, True)


def test_a_pool_is_filled_by_keys_and_by_filters_and_sent_to_a_worker(
    run: Any, as_role: Callable[[str], Client]
) -> None:
    reviewer = as_role("reviewer")
    pool = post(reviewer, "/api/v1/pools/", {"name": "best", "licence": "MIT"}).json()
    path = f"/api/v1/pools/{pool['id']}/"
    keys = list(run.environments.filter(superseded=False).values_list("key", flat=True)[:2])
    assert post(reviewer, f"{path}environments/", {"run": run.pk, "keys": keys}).json() == {"chosen": 2, "added": 2}
    skill = run.environments.first().skill
    chosen = run.environments.filter(superseded=False, skill=skill).count()
    added = post(reviewer, f"{path}environments/", {"run": run.pk, "filters": {"skill": skill}}).json()
    assert added["chosen"] == chosen
    empty = post(reviewer, f"{path}environments/", {"run": run.pk, "filters": {"skill": "none"}})
    assert empty.status_code == 409
    built = post(reviewer, f"{path}acts/build/").json()
    assert (built["state"], built["total"]) == ("building", built["environments"])
    assert post(reviewer, f"{path}acts/stop/").json()["state"] == "draft"
    assert reviewer.get(f"{path}pool.tar").status_code == 404
