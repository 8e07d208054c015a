"""What the handlers of event kinds share while one batch of an attempt's events is turned into rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trainer.events import Payload
from webapp.environments.models import CorpusDocument, Environment
from webapp.episodes.models import Episode, Transcript
from webapp.runs.copying import insert_transcripts
from webapp.runs.eventlog import Line
from webapp.runs.models import Attempt, Run


class Recording:
    """The run and attempt being filled (both locked by the caller's transaction), and rows collected for one insert."""

    def __init__(self, *, run: Run, attempt: Attempt) -> None:
        self.run = run
        self.attempt = attempt
        self.episodes: list[Episode] = []
        self.transcripts: list[Transcript] = []
        self.episode_payloads: list[dict[str, Any]] = []
        self._environments: dict[str, Environment] = {}

    @property
    def is_newest(self) -> bool:
        """True when the attempt is the run's newest: only then do its events say how the run is."""
        return self.attempt.number == self.run.attempt

    def owner(self, line: Line) -> dict[str, Any]:
        """The columns every recorded row starts with."""
        return {"run": self.run, "attempt": self.attempt.number, "rollout": line.rollout}

    def environment(self, key: str) -> Environment | None:
        """The environment of that key that is not superseded; None when its event is missing or misfit."""
        if key not in self._environments:
            found = Environment.objects.filter(run=self.run, key=key, superseded=False).first()
            if found is None:
                return None
            self._environments[key] = found
        return self._environments[key]

    def document(self, key: str | None) -> CorpusDocument | None:
        """The corpus document of that key, if it was reported."""
        return CorpusDocument.objects.filter(run=self.run, key=key).first() if key is not None else None

    def forget(self) -> None:
        """Drop what was looked up: rows may have become superseded."""
        self._environments.clear()

    def reset(self) -> None:
        """Drop everything collected and read the attempt afresh, after the database refused something."""
        self.forget()
        self._clear()
        self.attempt.refresh_from_db()

    def flush(self) -> None:
        """Insert the collected episodes; afterwards their compact payloads carry their ids."""
        Episode.objects.bulk_create(self.episodes)
        for episode, transcript, payload in zip(self.episodes, self.transcripts, self.episode_payloads, strict=True):
            transcript.episode_id = episode.pk
            payload["id"] = episode.pk
        insert_transcripts(self.transcripts)
        self._clear()

    def _clear(self) -> None:
        self.episodes.clear()
        self.transcripts.clear()
        self.episode_payloads.clear()


#: Turns one event into rows and returns the compact payload that is kept with the event.
Handler = Callable[[Recording, Line, Any], dict[str, Any]]


def compact(payload: Payload, *, without: frozenset[str] = frozenset(), **more: Any) -> dict[str, Any]:
    """The payload's fields as JSON data, except ``without``, plus ``more``."""
    return {**payload.model_dump(mode="json", exclude=set(without)), **more}
