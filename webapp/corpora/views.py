"""Pages of corpora: the list, adding one by upload or from a folder of this machine, and one corpus with what was found in it."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.csrf import csrf_exempt, csrf_protect
from django.views.decorators.http import require_POST, require_safe

from trainer.corpus import SUFFIXES
from webapp.accounts.permissions import require_role
from webapp.accounts.roles import Role, has_role
from webapp.core.problems import problem_response
from webapp.core.requests import signed_in_user
from webapp.corpora import selectors, services, storage
from webapp.corpora.incoming import IncomingFiles
from webapp.corpora.models import Corpus
from webapp.runs.errors import ActRefused

RUNS_SHOWN = 50


@require_role(Role.VIEWER)
@require_safe
def corpus_list(request: HttpRequest) -> HttpResponse:
    """All corpora, newest first, with how many runs name each."""
    page = selectors.list_corpora(cursor=request.GET.get("after", ""))
    counts = selectors.run_counts(corpora=page.rows)
    rows = [{"corpus": corpus, "runs": counts.get(corpus.source, 0)} for corpus in page.rows]
    context = {"page": page, "rows": rows, "may_add": has_role(request.user, Role.OPERATOR)}
    return render(request, "corpora/list.html", context)


@require_role(Role.OPERATOR)
@require_safe
def corpus_new(request: HttpRequest) -> HttpResponse:
    """Upload, or choose from the folder the settings name; ``?folder=`` looks into one of its folders."""
    return render(request, "corpora/new.html", _adding(request, relative=request.GET.get("folder", "")))


def _adding(request: HttpRequest, *, relative: str, problem: str = "") -> dict[str, Any]:
    base = storage.root()
    listed, where, chosen_problem = [], "", ""
    if base is not None:
        try:
            folder = storage.inside_root(relative)
            if not folder.is_dir():
                folder = folder.parent
            where = "" if folder == base else str(folder.relative_to(base))
            listed = storage.entries(folder)
        except (ActRefused, OSError) as error:
            chosen_problem = str(error)
    steps = where.split("/") if where else []
    trail = [{"name": step, "relative": "/".join(steps[: at + 1])} for at, step in enumerate(steps)]
    return {
        "root": base, "entries": listed, "where": where, "trail": trail, "problem": problem or chosen_problem,
        "limit_bytes": settings.SPADEWORK_UPLOAD_BYTES, "accept": ",".join(sorted(SUFFIXES)), "details": request.POST,
    }  # fmt: skip


@csrf_exempt  # the check is made in _take_in: it reads the body, which needs our upload handler in place first
@require_role(Role.OPERATOR)
@require_POST
def upload(request: HttpRequest) -> HttpResponse:
    """Take files in. Answers with the corpus's page, or with why nothing was kept; scripts get JSON."""
    handler = IncomingFiles(request)
    request.upload_handlers = [handler]
    try:
        return _take_in(request)
    finally:
        handler.discard()


@csrf_protect
def _take_in(request: HttpRequest) -> HttpResponse:
    request.FILES  # noqa: B018  parses the body, with the handler set by `upload`
    (handler,) = request.upload_handlers
    if not isinstance(handler, IncomingFiles):
        raise TypeError("the upload handler was replaced")
    problem = handler.problem
    if not problem:
        try:
            corpus = services.add_upload(
                actor=signed_in_user(request), files=handler.files, name=request.POST.get("name", ""),
                licence=request.POST.get("licence", ""), notes=request.POST.get("notes", ""),
            )  # fmt: skip
            return _added(request, corpus)
        except ActRefused as error:
            problem = str(error)
        except OSError as error:
            problem = f"The files cannot be kept: {error.strerror or error}."
    if "application/json" in request.headers.get("Accept", ""):
        return problem_response(request, status=422, code="invalid-request", detail=problem)
    return render(request, "corpora/new.html", _adding(request, relative="", problem=problem), status=422)


def _added(request: HttpRequest, corpus: Corpus) -> HttpResponse:
    address = reverse("corpora:page", args=[corpus.pk])
    if "application/json" in request.headers.get("Accept", ""):
        return JsonResponse({"url": address})
    return redirect(address)


@require_role(Role.OPERATOR)
@require_POST
def choose(request: HttpRequest) -> HttpResponse:
    """List a file or folder of this machine."""
    relative = request.POST.get("path", "")
    try:
        corpus = services.choose_corpus(
            actor=signed_in_user(request), relative=relative, name=request.POST.get("name", ""),
            licence=request.POST.get("licence", ""), notes=request.POST.get("notes", ""),
        )  # fmt: skip
    except ActRefused as error:
        context = _adding(request, relative=request.POST.get("folder", ""), problem=str(error))
        return render(request, "corpora/new.html", context, status=422)
    return redirect("corpora:page", corpus.pk)


@require_role(Role.VIEWER)
@require_safe
def corpus_page(request: HttpRequest, corpus_id: int) -> HttpResponse:
    """One corpus: what was found in it, its first documents, the runs that name it."""
    corpus = selectors.access_corpus(corpus_id=corpus_id)
    runs = selectors.users_of(corpus=corpus).select_related("owner")
    context = {**_checked(request, corpus), "runs": list(runs[:RUNS_SHOWN]), "run_count": runs.count()}
    return render(request, "corpora/page.html", context)


@require_role(Role.VIEWER)
@require_safe
def corpus_check(request: HttpRequest, corpus_id: int) -> HttpResponse:
    """What was found, alone, for live updates."""
    return render(request, "corpora/_check.html", _checked(request, selectors.access_corpus(corpus_id=corpus_id)))


def _checked(request: HttpRequest, corpus: Corpus) -> dict[str, Any]:
    skipped = sorted((corpus.report.get("skipped") or {}).items(), key=lambda item: -item[1])
    may_edit = has_role(request.user, Role.OPERATOR)
    is_checking = corpus.state == Corpus.State.CHECKING and not corpus.failure
    is_gone = corpus.origin == Corpus.Origin.UPLOADED and not storage.has_upload(corpus.pk)
    return {
        "corpus": corpus, "report": corpus.report, "skipped": skipped, "unusable": sum(count for _, count in skipped),
        "may_edit": may_edit, "is_checking": is_checking, "is_gone": is_gone,
        "may_check": may_edit and bool(corpus.source) and not is_checking and not is_gone,
    }  # fmt: skip


@require_role(Role.OPERATOR)
@require_POST
def corpus_act(request: HttpRequest, corpus_id: int, act: str) -> HttpResponse:
    """Edit, check again, delete."""
    corpus = selectors.access_corpus(corpus_id=corpus_id)
    actor = signed_in_user(request)
    try:
        if act == "edit":
            services.edit_corpus(
                actor=actor, corpus_id=corpus.pk, name=request.POST.get("name", ""),
                licence=request.POST.get("licence", ""), notes=request.POST.get("notes", ""),
            )  # fmt: skip
        elif act == "check":
            services.check_again(actor=actor, corpus_id=corpus.pk)
        elif act == "delete":
            users = services.delete_corpus(actor=actor, corpus_id=corpus.pk)
            kept = f" Its files stay until none of the {users} runs that name it is left." if users else ""
            messages.success(request, f"{corpus.name} is deleted.{kept}")
            return redirect("corpora:list")
        else:
            raise Http404("There is no such act.")
    except ActRefused as error:
        messages.error(request, str(error))
    return redirect("corpora:page", corpus.pk)
