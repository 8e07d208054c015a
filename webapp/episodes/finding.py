"""Finding a text inside one transcript, in the database: a long transcript does not travel to be searched."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import connection

from webapp.episodes.models import Episode

HITS_SHOWN = 100
AROUND = 60  # characters left and right of a hit


@dataclass(frozen=True, kw_only=True)
class Hit:
    """A part of a turn that holds the text: its first occurrence with what stands around it."""

    number: int  # turn, from 0
    part: str  # observation, reply
    before: str
    match: str
    after: str

    @property
    def position(self) -> int:
        """Number people count by."""
        return self.number + 1


def find_in_transcript(*, episode: Episode, text: str) -> list[Hit]:
    """Where ``text`` occurs, letters of either case, in the order of turns; at most HITS_SHOWN parts."""
    if not text or "\x00" in text:
        return []
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT found.at - 1, found.part, substr(found.body, greatest(1, found.place - %(around)s), least(found.place - 1, %(around)s)),
                   substr(found.body, found.place, %(length)s), substr(found.body, found.place + %(length)s, %(around)s)
            FROM (
                SELECT numbered.at, side.part, side.body, strpos(lower(side.body), lower(%(text)s)) AS place
                FROM episodes_transcript, LATERAL jsonb_array_elements(turns) WITH ORDINALITY AS numbered(turn, at),
                     LATERAL (VALUES ('observation', turn->>'observation'), ('reply', turn->>'reply')) AS side(part, body)
                WHERE episode_id = %(episode)s
            ) AS found
            WHERE found.place > 0 ORDER BY found.at, found.part LIMIT %(limit)s
            """,
            {"text": text, "length": len(text), "around": AROUND, "episode": episode.pk, "limit": HITS_SHOWN},
        )
        rows = cursor.fetchall()
    return [
        Hit(number=at, part=part, before=before, match=match, after=after) for at, part, before, match, after in rows
    ]
