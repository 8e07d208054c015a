"""API of environments, candidates, memory, documents and regret of one run."""

from __future__ import annotations

from django.http import Http404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from webapp.api.views import ApiView, actor_of, answers, lists, page_response, paging, sent
from webapp.environments import selectors, selectors_sources
from webapp.environments.serializers import (
    AskedSerializer,
    CandidateRowSerializer,
    CandidateSerializer,
    DocumentRowSerializer,
    DocumentSerializer,
    EnvironmentSerializer,
    JudgementSerializer,
    ListedEnvironmentSerializer,
    MemorySerializer,
    RegretSerializer,
)
from webapp.environments.views import JUDGE, filter_in, number_in
from webapp.runs.selectors import access_run

FILTERS = {
    "q": "Text in class name, key or hint.",
    "skill": "Of this skill.",
    "state": f"{', '.join(selectors.STATES)}.",
    "flag": f"Degenerate signal: {', '.join(selectors.FLAGS)}.",
    "rollout": "Written in this rollout.",
    "document": "Seeded by the corpus document of this key.",
}
_ATTEMPT = {"attempt": "Of this attempt, also when a resume left it behind; by default the one that holds."}


class Environments(ApiView):
    """Environments of a run."""

    @lists("environments_list", ListedEnvironmentSerializer, filters=FILTERS)
    def get(self, request: Request, run_id: int) -> Response:
        """Newest set first, with what was measured on each."""
        run = access_run(run_id=run_id)
        chosen = filter_in(request.query_params)
        page, listed = selectors.list_environments(run=run, chosen=chosen, **paging(request))
        return page_response(request, page, ListedEnvironmentSerializer(listed, many=True).data)


class OneEnvironment(ApiView):
    """One environment."""

    @answers("environments_read", EnvironmentSerializer, query=_ATTEMPT)
    def get(self, request: Request, run_id: int, key: str) -> Response:
        """Code, hint, gates and statistics."""
        attempt = number_in(request.query_params, "attempt")
        environment = selectors.access_environment(run=access_run(run_id=run_id), key=key, attempt=attempt)
        context = {
            "measured": selectors.with_measures(environments=[environment])[0].measured,
            "offsets": selectors.statistics_by_offset(environment=environment),
        }
        return Response(EnvironmentSerializer(environment, context=context).data)


class Judge(ApiView):
    """Quarantine and release."""

    @extend_schema(
        operation_id="environments_judge", request=JudgementSerializer, responses={202: AskedSerializer},
        parameters=[OpenApiParameter("act", OpenApiTypes.STR, OpenApiParameter.PATH, enum=list(JUDGE))],
    )  # fmt: skip
    def post(self, request: Request, run_id: int, key: str, act: str) -> Response:
        """Ask the trainer to bar an environment from play and training, or to let it back; it answers with a rollout."""
        run, service = access_run(run_id=run_id), JUDGE.get(act)
        if service is None:
            raise Http404(f"There is no act {act}; there are {', '.join(JUDGE)}.")
        selectors.access_environment(run=run, key=key)
        reason = sent(request, JudgementSerializer)["reason"]
        command = service(actor=actor_of(request), run_id=run.pk, environment_key=key, reason=reason)
        return Response(AskedSerializer({"command": command.pk}).data, status=202)


class Candidates(ApiView):
    """Design attempts of a run."""

    @lists(
        "candidates_list", CandidateRowSerializer,
        filters={"verdict": "accepted or rejected; both by default.", "skill": "Of this skill.", "stage": "Rejected by this gate."},
    )  # fmt: skip
    def get(self, request: Request, run_id: int) -> Response:
        """Newest first."""
        query = request.query_params
        page = selectors.list_candidates(
            run=access_run(run_id=run_id), skill=query.get("skill", ""), stage=query.get("stage", ""),
            accepted={"accepted": True, "rejected": False}.get(query.get("verdict", "")), **paging(request),
        )  # fmt: skip
        return page_response(request, page, CandidateRowSerializer(page.rows, many=True).data)


class OneCandidate(ApiView):
    """One design attempt."""

    @answers("candidates_read", CandidateSerializer, query=_ATTEMPT)
    def get(self, request: Request, run_id: int, key: str) -> Response:
        """Prompt, reply, code and the verdict of every gate."""
        attempt = number_in(request.query_params, "attempt")
        candidate = selectors.access_candidate(run=access_run(run_id=run_id), key=key, attempt=attempt)
        return Response(CandidateSerializer(candidate).data)


class Memory(ApiView):
    """Memory records of a run."""

    @lists("memory_list", MemorySerializer, filters={"skill": "Of this skill.", "state": "present or removed."})
    def get(self, request: Request, run_id: int) -> Response:
        """Newest first."""
        run, query = access_run(run_id=run_id), request.query_params
        present = {"present": True, "removed": False}.get(query.get("state", ""))
        page = selectors_sources.list_memory(
            run=run, skill=query.get("skill", ""), present=present, with_snippets=True, **paging(request)
        )
        uses = selectors_sources.uses_of(run=run, keys=[record.environment_key for record in page.rows])
        return page_response(request, page, MemorySerializer(page.rows, many=True, context={"uses": uses}).data)


class Documents(ApiView):
    """Corpus documents the designer was shown."""

    @lists("documents_list", DocumentRowSerializer, filters={"q": "Text in title or key."})
    def get(self, request: Request, run_id: int) -> Response:
        """Newest first."""
        search = request.query_params.get("q", "").strip()[:200]
        page = selectors_sources.list_documents(run=access_run(run_id=run_id), search=search, **paging(request))
        return page_response(request, page, DocumentRowSerializer(page.rows, many=True).data)


class OneDocument(ApiView):
    """One corpus document."""

    @answers("documents_read", DocumentSerializer)
    def get(self, request: Request, run_id: int, document_id: int) -> Response:
        """As the designer saw it."""
        document = selectors_sources.access_document(run=access_run(run_id=run_id), document_id=document_id)
        return Response(DocumentSerializer(document).data)


class Regret(ApiView):
    """Regret of a run's environments."""

    @lists("regret_list", RegretSerializer, filters={"skill": "Of this skill."})
    def get(self, request: Request, run_id: int) -> Response:
        """Measurements, newest first."""
        skill = request.query_params.get("skill", "")
        page = selectors_sources.list_regret(run=access_run(run_id=run_id), skill=skill, **paging(request))
        return page_response(request, page, RegretSerializer(page.rows, many=True).data)
