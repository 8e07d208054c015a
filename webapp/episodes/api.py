"""API of episodes and transcripts of one run."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response

from webapp.api.views import ApiView, answers, limit_of, lists, page_response, paging
from webapp.environments.views import number_in
from webapp.episodes import selectors
from webapp.episodes.selectors import STATUSES, EpisodeFilter
from webapp.episodes.serializers import EpisodeSerializer, TranscriptSerializer
from webapp.runs.selectors import access_run

_FILTERS = {
    "arm": "unhinted or hinted.",
    "status": f"{', '.join(STATUSES)}; or fault for every fault.",
    "environment": "Of the environment with this key.",
    "rollout": "Played in this rollout.",
}


class Episodes(ApiView):
    """Episodes of a run."""

    @lists("episodes_list", EpisodeSerializer, filters=_FILTERS)
    def get(self, request: Request, run_id: int) -> Response:
        """Newest first."""
        query = request.query_params
        chosen = EpisodeFilter(
            arm=query.get("arm", ""), status=query.get("status", ""), environment=query.get("environment", ""),
            rollout=number_in(query, "rollout"),
        )  # fmt: skip
        page = selectors.list_episodes(run=access_run(run_id=run_id), chosen=chosen, **paging(request))
        return page_response(request, page, EpisodeSerializer(page.rows, many=True).data)


class Transcript(ApiView):
    """One transcript."""

    @answers(
        "episodes_transcript", TranscriptSerializer,
        query={"start": "First turn, from 0.", "limit": "Turns, 1 to 500; 50 by default."},
    )  # fmt: skip
    def get(self, request: Request, run_id: int, episode_id: int) -> Response:
        """The episode and its turns, whole texts, ``limit`` turns at a time."""
        episode = selectors.access_episode(run=access_run(run_id=run_id), episode_id=episode_id)
        transcript = selectors.whole_transcript(episode=episode)
        start = number_in(request.query_params, "start") or 0
        turns = transcript.turns[start : start + limit_of(request)]
        body = {
            "episode": episode, "start": start, "turns": turns, "final_observation": transcript.final_observation,
            "text_removed_at": transcript.removed_at,
            "more": start + len(turns) < len(transcript.turns),
        }  # fmt: skip
        return Response(TranscriptSerializer(body).data)
