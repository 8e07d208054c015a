"""Episode events as rows."""

from __future__ import annotations

from typing import Any

from trainer.events import EpisodeFinished
from webapp.episodes.models import Episode, Transcript
from webapp.runs.eventlog import Line
from webapp.runs.recording import Handler, Recording, compact

_HEAVY = frozenset({"turns", "final_observation"})


def record_episode(recording: Recording, line: Line, payload: EpisodeFinished) -> dict[str, Any]:
    """Collect the episode; it is inserted together with the others of the batch."""
    episode = Episode(
        **recording.owner(line),
        environment=recording.environment(payload.environment),
        environment_key=payload.environment,
        key=payload.episode,
        arm=payload.arm,
        offset=payload.offset,
        play=payload.play,
        seed=payload.seed,
        status=payload.status,
        reward=payload.reward,
        turns=len(payload.turns),
        prompt_tokens=payload.prompt_tokens,
        total_tokens=payload.total_tokens,
        trained_tokens=payload.trained_tokens,
        fault=payload.fault,
        elapsed_s=payload.elapsed_s,
        at=line.at,
    )
    kept = compact(payload, without=_HEAVY, turns=len(payload.turns))
    recording.episodes.append(episode)
    recording.transcripts.append(
        Transcript(turns=line.payload["turns"], final_observation=line.payload["final_observation"])
    )
    recording.episode_payloads.append(kept)
    return kept


HANDLERS: dict[str, Handler] = {"episode": record_episode}
