"""The start form: made from the trainer's model, refuses with the message at the field, queues only what is valid."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.http import QueryDict
from django.test import Client

from trainer.config import RunConfig
from trainer.presets import load_preset
from webapp.runs.errors import Problem
from webapp.runs.forms import NOT_ASKED, SettingsForm, sections, setting_text, setting_value, specs

# The form offers the corpora of the database.
pytestmark = pytest.mark.django_db


def leaves(model: Any, prefix: str = "") -> set[str]:
    found: set[str] = set()
    for name, field in model.model_fields.items():
        inner = field.annotation
        if hasattr(inner, "model_fields"):
            found |= leaves(inner, f"{prefix}{name}.")
        else:
            found.add(f"{prefix}{name}")
    return found


def posted(preset: str, **changes: str | None) -> dict[str, str]:
    """What a browser sends for an unchanged form, with changes (None leaves a field out)."""
    config = load_preset(preset).model_dump(mode="json")
    data = {"preset": preset, "name": "", "tags": ""}
    for spec in specs():
        text = setting_text(setting_value(config, spec.path))
        if spec.kind != "bool" or text == "true":
            data[spec.path] = text
    for path, value in changes.items():
        key = path.replace("__", ".")
        if value is None:
            data.pop(key, None)
        else:
            data[key] = value
    return data


def runs() -> Any:
    from webapp.runs.models import Run

    return Run.objects.order_by("pk")


def test_every_setting_of_the_model_is_asked_for_once() -> None:
    assert [spec.path for spec in specs()].count("schedule.rollouts") == 1
    assert {spec.path for spec in specs()} == leaves(RunConfig) - NOT_ASKED


def test_a_setting_carries_its_kind_unit_limits_and_sentence() -> None:
    by_path = {spec.path: spec for spec in specs()}
    timeout = by_path["sandbox.step_timeout_s"]
    assert (timeout.kind, timeout.unit, timeout.limits, timeout.label) == ("float", "s", "> 0, ≤ 600", "step timeout")
    assert by_path["schedule.plays"].limits == "2 to 1024"
    assert by_path["model.dtype"].choices == ("fp32", "bf16")
    assert by_path["schedule.skills"].kind == "list"
    assert by_path["memory.enabled"].kind == "bool"
    assert all(spec.help for spec in specs())


def test_what_most_people_change_comes_first() -> None:
    assert [section.key for section in sections()][:2] == ["run", "schedule"]


def test_an_unchanged_form_overrides_nothing() -> None:
    data = QueryDict(mutable=True)
    data.update(posted("demo"))
    assert SettingsForm(load_preset("demo"), data).overrides() == {}


def test_the_same_number_in_other_words_is_no_change() -> None:
    data = QueryDict(mutable=True)
    data.update(posted("demo", optim__learning_rate=f"{load_preset('demo').optim.learning_rate:.10f}"))
    assert SettingsForm(load_preset("demo"), data).overrides() == {}


def test_a_cleared_check_box_is_a_change_to_false() -> None:
    data = QueryDict(mutable=True)
    data.update(posted("demo", memory__enabled=None))
    assert SettingsForm(load_preset("demo"), data).overrides() == {"memory.enabled": False}


def test_a_problem_that_names_two_settings_stands_at_both_and_at_the_top() -> None:
    form = SettingsForm(load_preset("demo"))
    form.add_problems([Problem("", "schedule.designer_delay is shorter than schedule.regenerate_every")])
    assert {one.spec.path for one in form.settings() if one.errors} == {
        "schedule.designer_delay",
        "schedule.regenerate_every",
    }
    assert len(form.general) == 1


def test_a_valid_form_makes_a_queued_run_with_its_overrides(operator: Client) -> None:
    answer = operator.post(
        "/runs/new/", {**posted("tiny", schedule__rollouts="3", seed="12"), "name": "first", "tags": "cpu, try , "}
    )
    run = runs().get()
    assert (answer.status_code, answer["Location"]) == (302, f"/runs/{run.pk}/")
    assert (run.status, run.name, run.tags, run.preset) == ("queued", "first", ["cpu", "try"], "tiny")
    assert (run.total_rollouts, run.seed, run.config["schedule"]["rollouts"]) == (3, 12, 3)
    assert run.config["schedule"]["plays"] == load_preset("tiny").schedule.plays


@pytest.mark.parametrize(
    ("changes", "path", "said"),
    [
        ({"schedule__rollouts": "0"}, "schedule.rollouts", "greater than or equal to 1"),
        ({"schedule__rollouts": "many"}, "schedule.rollouts", "valid integer"),
        ({"schedule__rollouts": ""}, "schedule.rollouts", "valid integer"),
        ({"optim__learning_rate": "nan"}, "optim.learning_rate", "finite"),
        ({"optim__learning_rate": "1e999"}, "optim.learning_rate", "finite"),
        ({"model__dtype": "int3"}, "model.dtype", "fp32"),
        ({"schedule__skills": ""}, "schedule.skills", "at least 1"),
        ({"model__path": "a\x00b"}, "model.path", "holds a NUL"),
        ({"agent__temperature": "<script>alert(1)</script>"}, "agent.temperature", "valid number"),
    ],
)
def test_a_wrong_value_is_refused_at_its_field_and_nothing_is_queued(
    changes: dict[str, str], path: str, said: str, operator: Client
) -> None:
    answer = operator.post("/runs/new/", posted("demo", **changes))
    assert answer.status_code == 422
    assert not runs().exists()
    html = answer.content.decode()
    assert "Nothing was queued" in html
    block = html[html.index(f'id="set-{path.replace(".", "-")}-error"') :][:600]
    assert said in block
    assert "<script>alert" not in html


def test_contradicting_settings_are_named_and_nothing_is_queued(operator: Client) -> None:
    answer = operator.post("/runs/new/", posted("demo", schedule__designer_delay="1", schedule__regenerate_every="4"))
    html = answer.content.decode()
    assert answer.status_code == 422
    assert not runs().exists()
    for path in ("schedule-designer_delay", "schedule-regenerate_every"):
        assert f'id="set-{path}-error"' in html


def test_presets_that_need_a_gpu_say_why_they_cannot_start(operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webapp.runs.configuration.gpus", lambda: ())
    html = operator.get("/runs/new/?preset=games-4b").content.decode()
    assert "needs a CUDA GPU" in html
    assert re.search(r'id="start-run"[^>]*disabled', html)
    assert not re.search(r'id="start-run"[^>]*disabled', operator.get("/runs/new/?preset=demo").content.decode())


def test_the_refusal_of_a_gpu_preset_also_holds_without_the_button(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webapp.runs.configuration.gpus", lambda: ())
    operator.post("/runs/new/", posted("games-4b"))
    assert [run.status for run in runs()] == ["draft"]


def test_an_unknown_preset_is_not_found(operator: Client) -> None:
    assert operator.get("/runs/new/?preset=../../etc/passwd").status_code == 404


@pytest.mark.parametrize("text", ["0", "x", "-1", "9" * 30, "1 or 1=1"])
def test_a_clone_of_nothing_is_not_found(text: str, operator: Client) -> None:
    assert operator.get("/runs/new/", {"clone": text}).status_code == 404


def test_cloning_starts_from_the_parents_settings_and_remembers_it(run: Any, operator: Client) -> None:
    html = operator.get(f"/runs/new/?clone={run.pk}").content.decode()
    assert f'value="{run.name} copy"' in html
    config = RunConfig.model_validate(run.config).model_dump(mode="json")
    data = {spec.path: setting_text(setting_value(config, spec.path)) for spec in specs()}
    data = {path: text for path, text in data.items() if text != "false"}
    answer = operator.post("/runs/new/", {**data, "clone": run.pk, "preset": "demo", "name": "again", "seed": "99"})
    clone = runs().last()
    assert answer["Location"] == f"/runs/{clone.pk}/"
    assert (clone.parent_id, clone.name, clone.config["seed"]) == (run.pk, "again", 99)
    assert clone.config["schedule"] == run.config["schedule"]


def test_what_was_typed_is_still_there_after_a_refusal(operator: Client) -> None:
    html = operator.post("/runs/new/", {**posted("demo", schedule__rollouts="0"), "name": "keep me"}).content.decode()
    assert 'value="keep me"' in html
    assert re.search(r'name="schedule.rollouts" value="0"', html)


def test_reading_a_form_costs_no_run(operator: Client, ingested: Callable[..., Any]) -> None:
    operator.get("/runs/new/")
    operator.get("/runs/new/?preset=tiny")
    assert not runs().exists()
