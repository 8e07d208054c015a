"""Role × address: viewers read everything, only operators act, nobody else sees anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

READ = (
    "list", "compare", "compare_series", "compare_csv", "queue", "system", "system_series",
    "row", "page", "head", "progress", "latest", "charts", "series", "series_csv", "checkpoints", "config", "config_json", "log",
    "log_file", "environments", "environment", "environment_code", "candidates", "candidate", "memory", "corpus", "document", "regret",
    "regret_series", "episodes", "episode", "episode_turns", "episode_raw", "pair", "episode_tokens", "beside",
    "play_new", "gate_runs", "play", "play_board",
    "variant", "lineage", "environment_diff", "signals", "rewards", "ledger", "alerts",
)  # fmt: skip
ACT = (("act", "stop"), ("act", "pause"), ("act", "checkpoint"), ("environment_judge", "quarantine"), ("edit", ""))
REVIEW = ("play_act", "gates_rerun", "variant_new")  # and POST of play_new


def bench(environment: Any) -> tuple[int, int]:
    """Number of a variant and id of a play of the environment, made when there are none."""
    from webapp.environments.models import PlaySession, Variant

    variant, _ = Variant.objects.get_or_create(environment=environment, number=1, code="pass", code_digest="0")
    session, _ = PlaySession.objects.get_or_create(environment=environment, seed=5, max_turns=3)
    return variant.number, session.pk


def address(run: Any, name: str, act: str = "") -> str:
    environment = run.environments.filter(superseded=False).first()
    episode = run.episodes.filter(environment=environment, arm="hinted").first()
    arguments = {
        "list": [], "compare": [], "compare_series": [], "compare_csv": [], "queue": [],
        "environment": [run.pk, environment.key], "environment_code": [run.pk, environment.key],
        "environment_judge": [run.pk, environment.key, act], "candidate": [run.pk, run.candidates.first().key],
        "lineage": [run.pk, environment.key], "environment_diff": [run.pk, environment.key],
        "play_new": [run.pk, environment.key], "gate_runs": [run.pk, environment.key], "gates_rerun": [run.pk, environment.key],
        "variant_new": [run.pk, environment.key], "variant": [run.pk, environment.key, bench(environment)[0]],
        "play": [run.pk, bench(environment)[1]], "play_board": [run.pk, bench(environment)[1]], "play_act": [run.pk, bench(environment)[1]],
        "document": [run.pk, run.corpusdocuments.first().pk], "episode": [run.pk, episode.pk], "episode_turns": [run.pk, episode.pk],
        "episode_tokens": [run.pk, episode.pk],
        "episode_raw": [run.pk, episode.pk], "pair": [run.pk, environment.key, episode.play], "act": [run.pk, act],
    }  # fmt: skip
    queries = {
        "environment_diff": f"?to={environment.key}",
        "episode_tokens": "?turn=0",
        "beside": f"?left={episode.pk}&right={episode.key}",
    }
    query = queries.get(name, "")
    return reverse(f"runs:{name}", args=arguments.get(name, [run.pk])) + query


def test_the_table_above_holds_every_address_of_runs() -> None:
    from webapp.runs.urls import urlpatterns

    def names(patterns: list[Any]) -> set[str]:
        found: set[str] = set()
        for item in patterns:
            found |= names(item.url_patterns) if hasattr(item, "url_patterns") else {item.name}
        return found

    lists = {"new", "bulk", "view_save", "view_delete", "queue_move"}
    elsewhere = {"checkpoint_download", "play_beside"}  # test_checkpoint_pages, environments/test_play_beside
    trying = {"try", "trial", "trial_board", "trial_state", "trial_act", "trial_beside"}  # tests/trying/test_pages
    assert names(urlpatterns) == {*READ, *REVIEW, *lists, *elsewhere, *trying, *(name for name, _ in ACT)}


@pytest.mark.parametrize(
    ("role", "status"),
    [("anonymous", 302), ("", 403), ("viewer", 200), ("reviewer", 200), ("operator", 200), ("admin", 200)],
)
def test_every_page_opens_for_viewers_and_up_and_for_nobody_else(
    role: str, status: int, run: Any, as_role: Callable[[str], Client]
) -> None:
    client = as_role(role)
    assert {name: client.get(address(run, name)).status_code for name in READ} == dict.fromkeys(READ, status)


@pytest.mark.parametrize(
    ("role", "status"), [("anonymous", 302), ("", 403), ("viewer", 403), ("reviewer", 403), ("operator", 302)]
)
@pytest.mark.parametrize(("name", "act"), ACT)
def test_only_operators_act(
    name: str, act: str, role: str, status: int, run: Any, as_role: Callable[[str], Client]
) -> None:
    answer = as_role(role).post(address(run, name, act), {"reason": "looks odd", "name": "tanks"})
    assert answer.status_code == status
    assert run.commands.exists() is (role == "operator" and name != "edit")


@pytest.mark.parametrize(
    ("role", "status"), [("anonymous", 302), ("viewer", 403), ("reviewer", 403), ("operator", 200)]
)
def test_only_operators_see_the_start_form(role: str, status: int, as_role: Callable[[str], Client]) -> None:
    assert as_role(role).get(reverse("runs:new")).status_code == status


@pytest.mark.parametrize(
    ("role", "status"), [("anonymous", 302), ("", 403), ("viewer", 403), ("reviewer", None), ("operator", None)]
)
@pytest.mark.parametrize("name", [*REVIEW, "play_new"])
def test_only_reviewers_and_up_play_judge_and_edit(
    name: str, role: str, status: int | None, run: Any, as_role: Callable[[str], Client]
) -> None:
    from webapp.environments.models import GateRun, PlaySession

    before = address(run, name), PlaySession.objects.count()
    answer = as_role(role).post(before[0], {"seed": "3", "code": "x = 1", "action": "1"})
    assert answer.status_code in ((302,) if status is None else (status,))
    did = {
        "play_new": PlaySession.objects.count() > before[1],
        "gates_rerun": GateRun.objects.exists(),
        "variant_new": GateRun.objects.exists(),
    }
    assert did.get(name, status is None) is (status is None)


def test_a_viewer_is_shown_no_button_that_would_be_refused(run: Any, viewer: Client, operator: Client) -> None:
    assert "Stop" in operator.get(address(run, "page")).content.decode()
    seen = viewer.get(address(run, "page")).content.decode()
    assert "Stop" not in seen
    assert "Clone" not in seen


@pytest.mark.parametrize(
    ("role", "status"), [("anonymous", 302), ("", 403), ("viewer", 403), ("reviewer", 403), ("operator", 302)]
)
@pytest.mark.parametrize("act", ["archive", "tag"])
def test_only_operators_act_on_many_runs(
    act: str, role: str, status: int, ingested: Callable[..., Any], as_role: Callable[[str], Client]
) -> None:
    run = ingested(status="completed")
    answer = as_role(role).post(reverse("runs:bulk"), {"act": act, "run": run.pk, "tag": "x"})
    assert answer.status_code == status
    run.refresh_from_db()
    assert (run.archived_at is not None or run.tags == ["x"]) is (role == "operator")


@pytest.mark.parametrize(("role", "status"), [("anonymous", 302), ("", 403), ("viewer", 302)])
def test_every_viewer_keeps_views_of_their_own(role: str, status: int, as_role: Callable[[str], Client]) -> None:
    from webapp.runs.models import SavedView

    assert as_role(role).post(reverse("runs:view_save"), {"name": "mine", "query": "tag=x"}).status_code == status
    assert SavedView.objects.exists() is (role == "viewer")


@pytest.mark.parametrize("name", ["act", "environment_judge"])
def test_acts_need_the_token_of_our_own_form(name: str, run: Any, operator: Client) -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = operator.cookies
    assert strict.post(address(run, name, "stop")).status_code == 403
    assert not run.commands.exists()


@pytest.mark.parametrize("act", ["purge", "clone", "__class__"])
def test_unknown_acts_are_not_found(act: str, run: Any, operator: Client) -> None:
    assert operator.post(f"/runs/{run.pk}/act/{act}/").status_code == 404


def test_nothing_of_one_run_opens_under_the_address_of_another(
    run: Any, ingested: Callable[..., Any], viewer: Client
) -> None:
    other = ingested(seed=11)
    episode, document = run.episodes.first(), run.corpusdocuments.first()
    assert viewer.get(reverse("runs:episode", args=[other.pk, episode.pk])).status_code == 404
    assert viewer.get(reverse("runs:episode_raw", args=[other.pk, episode.pk])).status_code == 404
    assert viewer.get(reverse("runs:document", args=[other.pk, document.pk])).status_code == 404
