"""The pages on which a checkpoint is tried: who may, what is refused and how it is said, and hostile text."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

HOSTILE = "</div><script>alert(1)</script>{{ 7|add:7 }} \x1b[2J\u202e<img src=x onerror=alert(2)>"


def try_url(run: Any, name: str = "000001") -> str:
    return reverse("runs:try", args=[run.pk, name])


def trial_url(trial: Any, page: str = "trial") -> str:
    return reverse(f"runs:{page}", args=[trial.run_id, trial.pk])


def act(client: Client, trial: Any, **fields: str) -> str:
    """What the board says after an act."""
    return client.post(trial_url(trial, "trial_act"), fields, headers={"HX-Request": "true"}).content.decode()


@pytest.mark.parametrize(
    ("role", "status"), [("anonymous", 302), ("", 403), ("viewer", 403), ("reviewer", 403), ("operator", 200), ("admin", 200)]
)  # fmt: skip
def test_operators_and_up_may_try(role: str, status: int, saved: Any, as_role: Callable[[str], Client]) -> None:
    client = as_role(role)
    assert client.get(try_url(saved)).status_code == status
    if status != 200:
        assert client.post(try_url(saved)).status_code == status
        assert not saved.trials.exists()


def test_the_checkpoints_tab_leads_there(saved: Any, operator: Client, viewer: Client) -> None:
    address = f"/runs/{saved.pk}/checkpoints/"
    assert f'href="{try_url(saved)}"' in operator.get(address).content.decode()
    assert "Try it" not in viewer.get(address).content.decode()


def test_loading_makes_a_session_and_an_audit_entry(saved: Any, operator: Client) -> None:
    from webapp.accounts.models import AuditEntry

    answer = operator.post(try_url(saved, "best"))  # names that people use, too
    answer = operator.post(try_url(saved, "latest"))
    trial = saved.trials.get()
    assert answer["Location"] == trial_url(trial)
    assert (trial.state, trial.checkpoint, trial.by.username) == ("waiting", "000001", "operator-person")
    entry = AuditEntry.objects.get(action="checkpoint.tried")
    assert entry.detail == {"checkpoint": "000001", "session": trial.pk}
    assert "Waiting for a worker" in operator.get(trial_url(trial)).content.decode()


def test_a_session_is_its_owners_alone_and_the_admins(
    held: Callable[..., Any], as_role: Callable[[str], Client], person: Callable[[str], Any]
) -> None:
    mine = held(by=person("admin"))
    other = held()
    for page in ("trial", "trial_board", "trial_state"):
        assert as_role("operator").get(trial_url(mine, page)).status_code == 404
        assert as_role("operator").get(trial_url(other, page)).status_code == 200
        assert as_role("admin").get(trial_url(other, page)).status_code == 200
    assert as_role("operator").post(trial_url(mine, "trial_act"), {"do": "end"}).status_code == 404
    assert "This session is over" in act(as_role("admin"), other, do="chat", text="hello")
    act(as_role("admin"), other, do="end")
    other.refresh_from_db()
    assert (other.state, other.failure) == ("ended", "Ended by admin-person.")


def test_one_session_a_person_and_two_in_an_installation(
    saved: Any, held: Callable[..., Any], as_role: Callable[[str], Client], person: Callable[[str], Any]
) -> None:
    first = held()
    told = as_role("operator").post(try_url(saved)).content.decode()
    assert "You are trying checkpoint 000001 of" in told and "one at a time is the limit" in told
    second = held(by=person("reviewer"))
    told = as_role("admin").post(try_url(saved)).content.decode()
    assert "2 checkpoints are being tried at the moment" in told
    assert "operator-person, reviewer-person" in told
    for one, state in ((first, "lost by silence"), (second, "ended")):
        if state == "ended":
            type(one).objects.filter(pk=one.pk).update(state="ended")
        else:
            type(one).objects.filter(pk=one.pk).update(leased_until=timezone.now() - timedelta(seconds=1))
    assert as_role("operator").post(try_url(saved)).status_code == 302


@pytest.mark.parametrize(
    ("harm", "status", "expected"),
    [
        (shutil.rmtree, 404, "is not on the disk (any more)"),
        (lambda folder: (folder / "model" / "model.safetensors").write_bytes(b""), 409, "does not have the recorded size"),
        (lambda folder: (folder / "COMPLETE").write_text("{"), 409, "COMPLETE file cannot be read"),
    ],
)  # fmt: skip
def test_a_checkpoint_that_cannot_be_tried_says_what_to_do(
    harm: Any, status: int, expected: str, saved: Any, operator: Client
) -> None:
    from tests.trainer.starter_run import add_checkpoint
    from trainer.rundir import RunDirectory
    from webapp.runs.configuration import parse_config

    add_checkpoint(RunDirectory(Path(saved.directory)), "000002", parse_config(saved.config))
    harm(Path(saved.directory) / "checkpoints" / "000001")
    for answer in (operator.get(try_url(saved)), operator.post(try_url(saved))):
        html = answer.content.decode()
        assert (answer.status_code, expected in html) == (status, True)
        assert f'href="{try_url(saved, "000002")}"' in html
        assert "load-checkpoint" not in html
    assert not saved.trials.exists()


def test_a_checkpoint_without_weights_says_so(saved: Any, operator: Client) -> None:
    import json

    folder = Path(saved.directory) / "checkpoints" / "000001"
    (folder / "model" / "model.safetensors").unlink()
    marker = json.loads((folder / "COMPLETE").read_text())
    del marker["files"]["model/model.safetensors"]
    (folder / "COMPLETE").write_text(json.dumps(marker))
    answer = operator.get(try_url(saved))
    assert answer.status_code == 409
    assert (
        "holds no weights" in answer.content.decode()
        and "No checkpoint of this run can be tried" in answer.content.decode()
    )


def test_the_notice_about_chatting_follows_the_runs_prompts(
    saved: Any, operator: Client, held: Callable[..., Any]
) -> None:
    trial = held()
    assert "does not chat" in operator.get(trial_url(trial)).content.decode()
    saved.config = {**saved.config, "prompts": "full"}
    saved.save()
    assert "does not chat" not in operator.get(trial_url(trial)).content.decode()


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"text": "  "}, "1 to 20,000 characters"),
        ({"text": "x" * 20_001}, "1 to 20,000 characters"),
        ({"text": "hi", "temperature": "0"}, "above 0"),
        ({"text": "hi", "temperature": "warm"}, "a number"),
        ({"text": "hi", "temperature": "nan"}, "above 0"),
        ({"text": "hi", "reply_tokens": "960"}, "1 to 959"),
        ({"text": "hi", "reply_tokens": "-1"}, "whole number"),
        ({"do": "play", "seed": "-1", "environment": "?"}, "whole number"),
        ({"do": "play", "seed": "", "environment": "?"}, "a whole number"),
        ({"do": "play", "seed": str(2**63), "environment": "?"}, "2^63"),
        ({"do": "play", "seed": "1", "environment": "?", "arm": "both"}, "unhinted or hinted"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_with_the_reason(
    fields: dict[str, str], expected: str, held: Callable[..., Any], operator: Client
) -> None:
    trial = held()
    key = trial.run.environments.filter(superseded=False).first().key
    sent = {name: key if value == "?" else value for name, value in fields.items()}
    assert expected in act(operator, trial, **sent)
    assert not trial.exchanges.exists()


def test_messages_are_one_conversation_until_a_fresh_one(held: Callable[..., Any], operator: Client) -> None:
    from webapp.trying.models import Exchange
    from webapp.trying.selectors import messages_of

    trial = held()
    assert "the model writes" in act(
        operator, trial, text="one", system="Be brief.", temperature="0.5", reply_tokens="12"
    )
    assert "still answers" in act(operator, trial, text="two")
    first = trial.exchanges.get()
    assert (first.temperature, first.reply_tokens) == (0.5, 12)
    Exchange.objects.filter(pk=first.pk).update(state="done", answer={"text": "yes"})
    act(operator, trial, text="two", system="ignored")
    second = trial.exchanges.last()
    assert [(m["role"], m["content"]) for m in messages_of(exchange=second)] == [
        ("system", "Be brief."), ("user", "one"), ("assistant", "yes"), ("user", "two"),
    ]  # fmt: skip
    Exchange.objects.filter(pk=second.pk).update(state="refused", failure="too long")
    assert "Nothing has been said yet" in act(operator, trial, do="fresh")
    act(operator, trial, text="three")
    assert [m["content"] for m in messages_of(exchange=trial.exchanges.last())] == ["three"]


def test_a_session_that_is_over_takes_nothing_and_says_why(held: Callable[..., Any], operator: Client) -> None:
    trial = held(leased_until=timezone.now() - timedelta(seconds=1))
    html = operator.get(trial_url(trial)).content.decode()
    assert "This session is lost" in html and "worker that held the model died" in html
    assert "hx-trigger" not in html.partition('id="try-board"')[2].partition(">")[0]
    assert "This session is over" in act(operator, trial, text="hello")
    trial = held(state="failed", failure=HOSTILE.replace("\x00", ""))
    html = operator.get(trial_url(trial)).content.decode()
    assert "<script>alert" not in html and "&lt;script&gt;alert(1)" in html


def test_what_a_model_writes_is_never_obeyed(held: Callable[..., Any], operator: Client) -> None:
    from webapp.trying.models import Exchange

    trial = held()
    answer = {"text": HOSTILE, "finish": "stop", "reply_tokens": 3, "prompt_tokens": 4, "elapsed_s": 0.1, "status": "lost",
              "reward": 0.0, "fault": HOSTILE, "total_tokens": 9, "sandbox_tier": HOSTILE}  # fmt: skip
    environment = trial.run.environments.filter(superseded=False).first()
    turn = {
        "observation": HOSTILE,
        "reply": HOSTILE,
        "action": HOSTILE,
        "reward": 0.0,
        "observation_tokens": 1,
        "reply_tokens": 1,
    }
    Exchange.objects.create(
        trial=trial, kind="chat", conversation=1, text=HOSTILE, system=HOSTILE, state="done", answer=answer
    )
    play = Exchange.objects.create(
        trial=trial, kind="play", environment=environment, seed=3, arm="hinted", state="done", answer=answer, turns=[turn],
        observation=HOSTILE,
    )  # fmt: skip
    Exchange.objects.create(
        trial=trial, kind="play", environment=environment, seed=3, arm="hinted", observation=HOSTILE
    )
    for query in ("", "?mode=play", f"?mode=play&play={play.pk}"):
        html = operator.get(trial_url(trial) + query).content.decode()
        assert "alert(1)" in html
        assert "<script>alert" not in html and "<img src=x" not in html
        assert "\u202e" not in html and "\x1b" not in html
        assert "{{ 7|add:7 }}" in html


def test_a_play_stands_beside_the_runs_play_of_the_seed(
    held: Callable[..., Any], operator: Client, as_role: Any
) -> None:
    from webapp.episodes.models import Transcript
    from webapp.trying.models import Exchange

    trial = held()
    environment = trial.run.environments.filter(superseded=False).first()
    episode = environment.episodes.filter(arm="unhinted").first()
    turn = {"observation": "Somewhere else", "reply": r"\boxed{1}", "action": r"\boxed{1}", "reward": 0.0}
    answer = {"status": "lost", "reward": 0.0, "total_tokens": 9, "elapsed_s": 1.0, "sandbox_tier": "namespaces"}
    play = Exchange.objects.create(
        trial=trial,
        kind="play",
        environment=environment,
        seed=episode.seed,
        arm="unhinted",
        state="done",
        answer=answer,
        turns=[turn],
    )
    address = reverse("runs:trial_beside", args=[trial.run_id, trial.pk, play.pk, episode.pk])
    assert f'href="{address}"' in operator.get(trial_url(trial) + "?mode=play").content.decode()
    html = operator.get(address).content.decode()
    assert "Somewhere else" in html and 'id="difference"' in html
    assert "removed by retention" not in html
    Transcript.objects.filter(episode=episode).update(turns=[], removed_at=timezone.now())
    html = operator.get(address).content.decode()
    assert "Somewhere else" in html and "was removed by retention on" in html
    assert as_role("reviewer").get(address).status_code == 403
    Exchange.objects.filter(pk=play.pk).update(state="running")
    assert operator.get(address).status_code == 404
