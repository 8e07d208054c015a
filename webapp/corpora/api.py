"""API of corpora: reading them, uploading, choosing from a folder of the machine, having them checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from drf_spectacular.utils import extend_schema
from rest_framework.exceptions import ValidationError
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response

from webapp.accounts.permissions import IsOperator, check_role
from webapp.accounts.roles import Role
from webapp.api.views import ApiView, actor_of, answers, lists, page_response, paging, sent
from webapp.corpora import selectors, services, storage
from webapp.corpora.incoming import IncomingFiles
from webapp.corpora.models import Corpus
from webapp.corpora.serializers import (
    AboutCorpusSerializer,
    ChoiceSerializer,
    ChosenCorpusSerializer,
    CorpusDetailSerializer,
    CorpusSerializer,
    EditedCorpusSerializer,
    UploadSerializer,
)
from webapp.runs.errors import ActRefused


def _counted(corpora: Sequence[Corpus]) -> dict[str, Any]:
    return {"runs": selectors.run_counts(corpora=corpora)}


def _detail(corpus_id: int, *, status: int = 200) -> Response:
    corpus = selectors.access_corpus(corpus_id=corpus_id)
    return Response(CorpusDetailSerializer(corpus, context=_counted([corpus])).data, status=status)


class Corpora(ApiView):
    """Corpora."""

    parser_classes = [MultiPartParser]  # noqa: RUF012 - DRF's own shape

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """With the upload handler of corpora in place before anything reads the body, and what it kept aside removed at the end."""
        handler = IncomingFiles(request)
        request.upload_handlers = [handler]
        try:
            return super().dispatch(request, *args, **kwargs)
        finally:
            handler.discard()

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """With a session the role comes first: its CSRF check reads the whole body."""
        person = request._request.user
        has_token = request.headers.get("Authorization", "").lower().startswith("bearer")
        if request.method == "POST" and person.is_authenticated and not has_token:
            check_role(request._request, Role.OPERATOR)
        super().initial(request, *args, **kwargs)

    @lists("corpora_list", CorpusSerializer)
    def get(self, request: Request) -> Response:
        """Newest first, without deleted ones."""
        page = selectors.list_corpora(**paging(request))
        return page_response(request, page, CorpusSerializer(page.rows, many=True, context=_counted(page.rows)).data)

    @extend_schema(
        operation_id="corpora_upload", request={"multipart/form-data": UploadSerializer}, responses={201: CorpusDetailSerializer}
    )  # fmt: skip
    def post(self, request: Request) -> Response:
        """Keep uploaded files as a corpus and have a worker check it; nothing is kept when one of them is not taken."""
        about = sent(request, AboutCorpusSerializer)  # reads the body
        (handler,) = request._request.upload_handlers
        if not isinstance(handler, IncomingFiles):
            raise TypeError("the upload handler was replaced")
        problem = handler.problem or ("" if handler.files else "Send at least one file under this name.")
        if problem:
            raise ValidationError({"files": [problem]})
        try:
            corpus = services.add_upload(actor=actor_of(request), files=handler.files, **about)
        except OSError as error:
            raise ActRefused(f"The files cannot be kept: {error.strerror or error}.") from error
        return _detail(corpus.pk, status=201)


class CorpusChoices(ApiView):
    """What can be chosen from the folder of this machine."""

    permission_classes = [IsOperator]  # noqa: RUF012 - DRF's own shape

    @answers(
        "corpora_choices", ChoiceSerializer(many=True),  # type: ignore[arg-type]
        query={"folder": "Look into this folder, a path as in the answer; without it the outermost one."},
    )  # fmt: skip
    def get(self, request: Request) -> Response:
        """Folders and readable files, at most 500; refused when SPADEWORK_CORPORA_ROOT is not set."""
        folder = storage.inside_root(request.query_params.get("folder", ""))
        if not folder.is_dir():
            raise ActRefused(f"{folder.name} is a file; choose it as it is.")
        try:
            found = storage.entries(folder)
        except OSError as error:
            raise ActRefused(f"{folder.name} cannot be read: {error.strerror or error}.") from error
        return Response(ChoiceSerializer(found, many=True).data)

    @answers("corpora_choose", CorpusDetailSerializer, takes=ChosenCorpusSerializer, status=201)
    def post(self, request: Request) -> Response:
        """List a file or folder as a corpus and have a worker check it; its files stay where they are."""
        values = sent(request, ChosenCorpusSerializer)
        corpus = services.choose_corpus(actor=actor_of(request), relative=values.pop("path"), **values)
        return _detail(corpus.pk, status=201)


class OneCorpus(ApiView):
    """One corpus."""

    @answers("corpora_read", CorpusDetailSerializer)
    def get(self, request: Request, corpus_id: int) -> Response:
        """Its state and what was found in it."""
        return _detail(corpus_id)

    @answers("corpora_edit", CorpusDetailSerializer, takes=EditedCorpusSerializer)
    def patch(self, request: Request, corpus_id: int) -> Response:
        """Change name, licence or notes."""
        corpus, values = selectors.access_corpus(corpus_id=corpus_id), sent(request, EditedCorpusSerializer)
        held = {"name": corpus.name, "licence": corpus.licence, "notes": corpus.notes}
        services.edit_corpus(actor=actor_of(request), corpus_id=corpus.pk, **{**held, **values})
        return _detail(corpus.pk)

    @answers("corpora_delete", None, status=204)
    def delete(self, request: Request, corpus_id: int) -> Response:
        """Take it off the list; an upload's files stay until no run names it, chosen ones stay where they are."""
        corpus = selectors.access_corpus(corpus_id=corpus_id)
        services.delete_corpus(actor=actor_of(request), corpus_id=corpus.pk)
        return Response(status=204)


class CorpusCheck(ApiView):
    """A check of a corpus."""

    @answers("corpora_check", CorpusDetailSerializer, status=202)
    def post(self, request: Request, corpus_id: int) -> Response:
        """Have a worker read the files once more; its state is checking until then."""
        corpus = selectors.access_corpus(corpus_id=corpus_id)
        services.check_again(actor=actor_of(request), corpus_id=corpus.pk)
        return _detail(corpus.pk, status=202)
