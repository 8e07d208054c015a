"""Start form, and what people do to a run. Reads through selectors, writes through services."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from trainer.config import RunConfig
from webapp.accounts.permissions import require_role
from webapp.accounts.roles import Role
from webapp.core.requests import signed_in_user
from webapp.runs import services, services_shelf
from webapp.runs.checkpoint_files import resolve_name
from webapp.runs.configuration import PresetChoice, apply_overrides, parse_config, presets, why_not_startable
from webapp.runs.errors import ActRefused, InvalidConfig
from webapp.runs.estimate import Estimate, estimate_of
from webapp.runs.forms import SettingsForm
from webapp.runs.models import Run
from webapp.runs.page import run_context
from webapp.runs.retention import with_checkpoint_defaults
from webapp.runs.selectors import access_run
from webapp.runs.services_fork import fork_run, why_not_forkable
from webapp.runs.suggestions import refused

#: Acts of the header, by the name in the address.
ACTS: dict[str, Callable[..., Any]] = {
    "start": services.start_run,
    "pause": services.pause_run,
    "unpause": services.unpause_run,
    "resume": services.resume_run,
    "stop": services.stop_run,
    "checkpoint": services.checkpoint_run,
    "archive": partial(services_shelf.shelve_run, act="archive"),
    "restore": partial(services_shelf.shelve_run, act="restore"),
    "delete": partial(services_shelf.shelve_run, act="delete"),
}
DONE = {
    "start": "{} is in the queue.",
    "pause": "{} pauses at its next safe point.",
    "unpause": "{} was asked to go on.",
    "resume": "{} is in the queue and will go on from its newest checkpoint.",
    "stop": "{} is being stopped.",
    "checkpoint": "{} was asked for a checkpoint.",
    "archive": "{} is archived: it is listed under “show: archived”.",
    "restore": "{} is restored.",
    "delete": "{} is deleted. Until it is removed for good it can be restored, under “show: deleted”.",
}


@require_role(Role.OPERATOR)
@require_http_methods(["GET", "HEAD", "POST"])
def run_new(request: HttpRequest) -> HttpResponse:
    """The start form: ``?preset=demo``, ``?clone=ID`` or ``?fork=ID&checkpoint=NAME`` prefill it.

    Nothing is queued unless every setting is valid.
    """
    data = request.POST if request.method == "POST" else request.GET
    choices = presets()
    checkpoint = data.get("checkpoint", "") if data.get("fork") else ""
    parent = _parent(data.get("fork", "") or data.get("clone", ""))
    if parent and checkpoint:
        checkpoint = resolve_name(run=parent, name=checkpoint)  # "best", "latest" or a number
    preset = _chosen_preset(choices, data.get("preset", ""))
    base = parse_config(parent.config) if parent else with_checkpoint_defaults(preset.config)
    # Settings may be in the address, such as ?corpus.source=; what they hold is judged as if it had been typed.
    form = SettingsForm(base, request.POST if request.method == "POST" else None, prefill=request.GET.dict())
    details = {
        "name": data.get("name", _first_name(parent, checkpoint)),
        "checkpoint": checkpoint,
        "tags": data.get("tags", ", ".join(parent.tags) if parent else ""),
        "notes": data.get("notes", ""),
    }
    estimate = None
    if "dry" in request.POST:
        estimate = _dry_run(form, base, parent, checkpoint)
    elif request.method == "POST":
        run = _create(request, form, base, parent, details)
        if run is not None:
            return redirect("runs:page", run.pk)
    main, variants = _sorted_out(choices)
    context = {
        "main_choices": main,
        "variants": variants,
        "preset": preset,
        "parent": parent,
        "form": form,
        "base": base,
        "estimate": estimate,
        **details,
    }
    return render(request, "runs/new.html", context, status=422 if form.general or form.error_count else 200)


def _create(
    request: HttpRequest, form: SettingsForm, base: Any, parent: Run | None, details: dict[str, str]
) -> Run | None:
    """Create and queue the run; None when something was refused and the form says what."""
    actor = signed_in_user(request)
    tags = details["tags"].split(",")
    try:
        config = apply_overrides(base, form.overrides())
        if parent and details["checkpoint"]:
            run = fork_run(
                actor=actor, run_id=parent.pk, checkpoint=details["checkpoint"], name=details["name"], config=config,
                tags=tags, notes=details["notes"],
            )  # fmt: skip
        elif parent:
            run = services.clone_run(actor=actor, run_id=parent.pk, name=details["name"], config=config)
            run = services.tag_run(actor=actor, run_id=run.pk, tags=tags)
        else:
            run = services.create_run(
                actor=actor, name=details["name"], config=config, tags=tags, notes=details["notes"]
            )
    except InvalidConfig as error:
        form.add_problems(error.problems)
        return None
    except ActRefused as error:
        form.general.append(str(error))
        return None
    try:
        services.start_run(actor=actor, run_id=run.pk)
    except ActRefused as error:
        messages.error(request, f"{run.name} was kept as a draft. {error}")
    return run


def _first_name(parent: Run | None, checkpoint: str) -> str:
    if parent is None:
        return ""
    return f"{parent.name} fork at {checkpoint}" if checkpoint else f"{parent.name} copy"


def _dry_run(form: SettingsForm, base: RunConfig, parent: Run | None, checkpoint: str) -> Estimate | None:
    """Validate as a start would and say what the run would do; None when the settings are refused, and the form says why."""
    try:
        config = apply_overrides(base, form.overrides())
    except InvalidConfig as error:
        form.add_problems(error.problems)
        return None
    form.add_problems(refused(config.model_dump(mode="json"), parent.config if parent else None))
    obstacles = [why_not_startable(config)]
    if parent and checkpoint:
        obstacles.append(why_not_forkable(run=parent, checkpoint=checkpoint, config=config))
    form.general += [obstacle for obstacle in obstacles if obstacle]
    return estimate_of(config=config)


def _parent(text: str) -> Run | None:
    if not text:
        return None
    if not text.isdecimal() or len(text) > 12:
        raise Http404("There is no such run to clone.")
    return access_run(run_id=int(text))


def _sorted_out(choices: list[PresetChoice]) -> tuple[list[PresetChoice], list[PresetChoice]]:
    """Presets that stand for themselves, and variants: those whose name goes on after another preset's name and a hyphen."""
    names = {choice.name for choice in choices}
    variants = [choice for choice in choices if any(choice.name.startswith(f"{name}-") for name in names)]
    standing = [choice for choice in choices if choice not in variants]
    standing.sort(key=lambda choice: (not choice.available, _natural(choice.name) if not choice.available else ()))
    return standing, variants


def _natural(name: str) -> tuple[tuple[int, str], ...]:
    """Sort key in which 4b comes before 30b."""
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name))


def _chosen_preset(choices: list[PresetChoice], name: str) -> PresetChoice:
    by_name = {choice.name: choice for choice in choices}
    if name and name not in by_name:
        raise Http404(f"There is no preset {name}.")
    return by_name[name] if name else next((choice for choice in choices if choice.available), choices[0])


@require_role(Role.OPERATOR)
@require_POST
def run_act(request: HttpRequest, run_id: int, act: str) -> HttpResponse:
    """Do something to a run; answers with the run's header for htmx, else with the page it came from."""
    run = access_run(run_id=run_id)
    service = ACTS.get(act)
    if service is None:
        raise Http404("There is no such act.")
    try:
        service(actor=signed_in_user(request), run_id=run.pk)
        messages.success(request, DONE[act].format(run.name))
    except ActRefused as error:
        messages.error(request, str(error))
    if request.headers.get("HX-Request"):
        return render(
            request, "runs/_head.html", {**run_context(request, access_run(run_id=run_id), ""), "with_messages": True}
        )
    return redirect("runs:page", run.pk)


@require_role(Role.OPERATOR)
@require_POST
def run_edit(request: HttpRequest, run_id: int) -> HttpResponse:
    """Rename, tag and annotate a run in one form."""
    run = access_run(run_id=run_id)
    actor = signed_in_user(request)
    name, tags, notes = request.POST.get("name", ""), request.POST.get("tags", ""), request.POST.get("notes", "")
    try:
        if name != run.name:
            services.rename_run(actor=actor, run_id=run.pk, name=name)
        if [tag.strip() for tag in tags.split(",") if tag.strip()] != run.tags:
            services.tag_run(actor=actor, run_id=run.pk, tags=tags.split(","))
        if notes != run.notes:
            services.annotate_run(actor=actor, run_id=run.pk, notes=notes)
    except ActRefused as error:
        messages.error(request, str(error))
    return redirect("runs:page", run.pk)
