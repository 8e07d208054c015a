"""Flags on pages: who sees and does what, what is shown at the place, the list, the taxonomy, hostile text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from tests.pages.synthetic import ATTACKS
from webapp.accounts.models import AuditEntry
from webapp.episodes.models import Episode, Transcript
from webapp.review import services
from webapp.review.models import Flag, FlagKind
from webapp.review.services import Pointer, Wish
from webapp.runs.models import Command, Run

pytestmark = pytest.mark.django_db


@pytest.fixture
def reviewer(as_role: Callable[[str], Client]) -> Client:
    return as_role("reviewer")


@pytest.fixture
def placed(environment: Any, person: Any, kind: Any) -> Callable[..., Flag]:
    """``placed("reviewer", comment=…)``: a flag on the environment."""

    def place(role: str = "reviewer", key: str = "answer-leaked", **options: Any) -> Flag:
        return services.place_flag(actor=person(role), environment_id=environment.pk, kind_id=kind(key).pk, **options)

    return place


def form(kinds: Any, **values: Any) -> dict[str, Any]:
    """What the dialog sends, with changes."""
    plain = {"subject": "environment", "severity": 2, "comment": "", "wish": "note", "weight": "0.25"}
    return {**plain, "kind": kinds("answer-leaked").pk, **values}


def page_of(environment: Any) -> str:
    return reverse("runs:environment", args=[environment.run_id, environment.key])


def text(answer: Any) -> str:
    return answer.content.decode()


def test_only_reviewers_and_up_flag(environment: Any, kind: Any, as_role: Any) -> None:
    address = reverse("review:place_flag", args=[environment.pk])
    statuses = {
        role: as_role(role).post(address, form(kind)).status_code for role in ("anonymous", "", "viewer", "reviewer")
    }
    assert statuses == {"anonymous": 302, "": 403, "viewer": 403, "reviewer": 302}
    assert [flag.by.username for flag in Flag.objects.all()] == ["reviewer-person"]


@pytest.mark.parametrize("name", ["put_into_effect", "undo_effect"])
def test_only_operators_touch_effects(name: str, placed: Any, as_role: Any) -> None:
    flag = placed("operator", wish=Wish(act="quarantine"))
    target = flag.pk if name == "put_into_effect" else flag.effect_id
    address = reverse(f"review:{name}", args=[target])
    assert {role: as_role(role).post(address).status_code for role in ("", "viewer", "reviewer")} == {
        "": 403, "viewer": 403, "reviewer": 403,
    }  # fmt: skip
    assert Command.objects.count() == 1
    assert as_role("operator").post(address).status_code == 302


def test_flags_are_read_by_viewers_and_by_nobody_without_a_role(placed: Any, environment: Any, as_role: Any) -> None:
    placed(comment="seen in turn 2")
    for address in (
        page_of(environment),
        reverse("review:flags"),
        reverse("review:environment_flags", args=[environment.pk]),
    ):
        assert [as_role(role).get(address).status_code for role in ("anonymous", "", "viewer")] == [302, 403, 200]
        assert "seen in turn 2" in text(as_role("viewer").get(address))


def test_a_viewer_sees_no_button_that_would_be_refused(
    placed: Any, environment: Any, viewer: Client, reviewer: Client
) -> None:
    placed("operator", wish=Wish(act="quarantine"))
    seen = text(viewer.get(page_of(environment)))
    assert "flag-dialog" not in seen
    assert "Withdraw" not in seen
    seen = text(reviewer.get(page_of(environment)))
    assert "flag-dialog" in seen
    assert "Undo the quarantine" not in seen
    assert "an operator puts it into effect" in seen


def test_flagging_lines_in_the_browser_points_at_them_and_goes_back_where_one_was(
    environment: Any, kind: Any, reviewer: Client
) -> None:
    back = f"{page_of(environment)}#L3"
    values = form(kind, subject="lines", first_line=3, last_line=4, comment="hard-coded", back=back)
    answer = reviewer.post(reverse("review:place_flag", args=[environment.pk]), values)
    assert answer["Location"] == back
    seen = text(reviewer.get(page_of(environment)))
    assert 'data-first-line="3" data-last-line="4"' in seen
    assert "lines 3–4" in seen


@pytest.mark.parametrize(
    "back", ["https://evil.example/", "//evil.example", "javascript:alert(1)", "/\\evil.example", ""]
)
def test_the_way_back_never_leaves_the_site(back: str, environment: Any, kind: Any, reviewer: Client) -> None:
    answer = reviewer.post(reverse("review:place_flag", args=[environment.pk]), form(kind, back=back))
    assert answer["Location"] == page_of(environment)


def test_flagging_a_turn_counts_from_one_as_people_do(environment: Any, kind: Any, reviewer: Client) -> None:
    episode = Episode.objects.filter(environment=environment).first()
    page = reverse("runs:episode", args=[environment.run_id, episode.pk])
    assert "Flag" in text(reviewer.get(page))
    reviewer.post(
        reverse("review:place_flag", args=[environment.pk]),
        form(kind, subject="turn", episode=episode.pk, turn=1, back=page),
    )
    assert Flag.objects.get().turn == 0
    assert 'data-turn="1"' in text(reviewer.get(page))
    assert "turn 1" in text(reviewer.get(page_of(environment)))


def test_a_turn_of_a_long_transcript_is_linked_on_the_page_that_has_it(
    placed: Any, environment: Any, viewer: Client
) -> None:
    episode = Episode.objects.filter(environment=environment).first()
    turn = {
        "observation": "again",
        "reply": "x",
        "action": "x",
        "reward": 0.0,
        "observation_tokens": 1,
        "reply_tokens": 1,
    }
    Transcript.objects.filter(episode=episode).update(turns=[turn] * 450)
    Episode.objects.filter(pk=episode.pk).update(turns=450)
    for number in (200, 201, 450):
        placed(subject="turn", pointer=Pointer(episode_id=episode.pk, turn=number - 1))
    flags = viewer.get(reverse("review:flags")).context["shown"]
    addresses = {item.place.text: item.place.url for item in flags}
    page = reverse("runs:episode", args=[environment.run_id, episode.pk])
    assert addresses == {
        "turn 200": f"{page}#t200", "turn 201": f"{page}?turn=201#t201", "turn 450": f"{page}?turn=450#t450",
    }  # fmt: skip
    for name, address in addresses.items():
        assert f'id="t{name.removeprefix("turn ")}"' in text(viewer.get(address.partition("#")[0]))


@pytest.mark.parametrize(
    "change", [{"kind": 999_999}, {"severity": 9}, {"subject": "planet"}, {"wish": "delete"}, {"turn": -1}]
)
def test_a_forged_form_places_nothing_and_says_what_is_wrong(
    change: dict[str, Any], environment: Any, kind: Any, reviewer: Client
) -> None:
    reviewer.post(reverse("review:place_flag", args=[environment.pk]), form(kind, **change))
    assert not Flag.objects.exists()
    assert "Not flagged." in text(reviewer.get(page_of(environment)))


def test_asked_then_in_effect_from_the_rollout_and_what_was_trained_is_shown(
    placed: Any, run: Any, environment: Any, operator: Client, trainer_says: Any
) -> None:
    flag = placed("operator", wish=Wish(act="quarantine"))
    assert "waits for the supervisor" in text(operator.get(page_of(environment)))
    trainer_says(run, flag.effect.command, rollout=4)
    seen = text(operator.get(page_of(environment)))
    assert "in effect from rollout 4" in seen
    episodes = Episode.objects.filter(environment=environment, trained_tokens__gt=0)
    tokens = sum(episodes.values_list("trained_tokens", flat=True))
    assert f"Trained on before that: {episodes.count()} episodes, {tokens} tokens, its design." in " ".join(
        seen.split()
    )


def test_a_finished_run_says_that_an_effect_counts_for_exports_only(
    placed: Any, run: Any, environment: Any, operator: Client
) -> None:
    Run.objects.filter(pk=run.pk).update(status="completed")
    assert "No trainer will read this" in text(operator.get(page_of(environment)))
    placed("operator", wish=Wish(act="quarantine"))
    seen = text(operator.get(page_of(environment)))
    assert "recorded" in seen
    assert "exports and queues leave it out" in seen


def test_withdrawing_by_the_button_shows_who_and_keeps_the_flag(
    placed: Any, environment: Any, reviewer: Client
) -> None:
    flag = placed()
    reviewer.post(reverse("review:withdraw_flag", args=[flag.pk]), {"back": page_of(environment)})
    seen = text(reviewer.get(page_of(environment)))
    assert "withdrawn by reviewer-person" in seen
    assert "data-first-line" not in seen


def test_the_list_narrows_by_kind_severity_state_and_run(placed: Any, run: Any, viewer: Client) -> None:
    note = placed("reviewer", "crash", severity=1)
    wanted = placed("reviewer", "shortcut", severity=3, wish=Wish(act="quarantine"))
    held = placed("operator", "hang", wish=Wish(act="purge_memory"))
    gone = placed("reviewer", "trivial")
    services.withdraw_flag(actor=gone.by, flag_id=gone.pk)

    def found(query: str) -> set[int]:
        return {item.flag.pk for item in viewer.get(f"{reverse('review:flags')}?{query}").context["shown"]}

    assert found("") == {note.pk, wanted.pk, held.pk, gone.pk}
    assert found("kind=crash") == {note.pk}
    assert found("severity=critical") == {wanted.pk}
    assert found("state=proposed") == {wanted.pk}
    assert found("state=held") == {held.pk}
    assert found("state=withdrawn") == {gone.pk}
    assert found("state=open") == {note.pk, wanted.pk, held.pk}
    assert found(f"run={run.pk + 1}") == set()
    assert viewer.get(f"{reverse('review:flags')}?run=x").status_code == 400


def test_flags_of_a_deleted_run_are_gone_until_it_is_restored(placed: Any, run: Any, operator: Client) -> None:
    flag = placed()
    Run.objects.filter(pk=run.pk).update(deleted_at=run.created_at)
    assert operator.get(reverse("review:flags")).context["shown"] == []
    assert operator.post(reverse("review:withdraw_flag", args=[flag.pk])).status_code == 404
    assert operator.get(reverse("review:environment_flags", args=[flag.environment_id])).status_code == 404
    Run.objects.filter(pk=run.pk).update(deleted_at=None)
    assert [item.flag for item in operator.get(reverse("review:flags")).context["shown"]] == [flag]


def test_hostile_comments_and_names_are_text_everywhere(ingested: Any, person: Any, kind: Any, as_role: Any) -> None:
    run = ingested(hostile=True)
    environment = run.environments.first()
    episode = Episode.objects.filter(environment=environment).first()
    for attack in ATTACKS:
        services.place_flag(
            actor=person("reviewer"), environment_id=environment.pk, kind_id=kind("unsafe").pk, comment=attack,
            pointer=Pointer(episode_id=episode.pk),
        )  # fmt: skip
    client = as_role("operator")
    for address in (
        page_of(environment),
        reverse("runs:episode", args=[run.pk, episode.pk]),
        reverse("review:flags"),
        reverse("review:list"),
    ):
        seen = text(client.get(address))
        assert "<img src=x" not in seen
        assert "<script>alert" not in seen
        assert "<svg/onload" not in seen
        assert "&lt;img src=x" in seen


# The taxonomy ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "arguments"), [("kinds", []), ("new_kind", []), ("kind", [1])])
def test_the_taxonomy_is_for_admins(name: str, arguments: list[int], as_role: Any) -> None:
    pk = FlagKind.objects.first().pk
    address = reverse(f"review:{name}", args=[pk for _ in arguments])
    assert [as_role(role).get(address).status_code for role in ("", "viewer", "reviewer", "operator", "admin")] == [
        403, 403, 403, 403, 200,
    ]  # fmt: skip


def test_an_admin_adds_rewords_retires_and_restores_a_kind(
    as_role: Any, kind: Any, environment: Any, reviewer: Client
) -> None:
    admin = as_role("admin")
    admin.post(reverse("review:new_kind"), {"label": "Needs  Luck ", "description": "Only chance decides."})
    made = kind("needs-luck")
    assert (made.label, made.position) == ("Needs Luck", 16)
    assert "Needs Luck" in text(reviewer.get(page_of(environment)))
    admin.post(reverse("review:kind", args=[made.pk]), {"label": "only luck", "description": ""})
    assert (kind("needs-luck").label, kind("needs-luck").description) == ("only luck", "")
    admin.post(reverse("review:kind_act", args=[made.pk, "retire"]))
    assert "only luck" not in text(reviewer.get(page_of(environment)))
    admin.post(reverse("review:kind_act", args=[made.pk, "restore"]))
    assert "only luck" in text(reviewer.get(page_of(environment)))
    actions = AuditEntry.objects.filter(action__startswith="flag_kind.").order_by("at").values_list("action", flat=True)
    assert list(actions) == ["flag_kind.added", "flag_kind.reworded", "flag_kind.retired", "flag_kind.restored"]


@pytest.mark.parametrize(
    ("label", "words"), [("crash", "already"), ("CRASH!", "already"), ("🙂", "letters"), ("", "required")]
)
def test_a_kind_that_is_there_or_has_no_name_is_refused(label: str, words: str, as_role: Any) -> None:
    answer = as_role("admin").post(reverse("review:new_kind"), {"label": label, "description": ""})
    assert words in text(answer)
    assert FlagKind.objects.count() == 15


def test_the_last_kind_stays(as_role: Any) -> None:
    first, *others = FlagKind.objects.all()
    admin = as_role("admin")
    for one in others:
        admin.post(reverse("review:kind_act", args=[one.pk, "retire"]))
    admin.post(reverse("review:kind_act", args=[first.pk, "retire"]))
    assert FlagKind.objects.get(retired_at=None) == first
    assert admin.post(reverse("review:kind_act", args=[first.pk, "explode"])).status_code == 404


def test_without_the_feature_the_pages_are_whole(
    environment: Any, viewer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    from webapp.core import panels

    monkeypatch.setattr(panels, "_RENDERERS", {})
    seen = text(viewer.get(page_of(environment)))
    assert 'id="flags"' not in seen
    assert environment.class_name in seen
