"""Token ids, masks and log-probs of one episode, read from the run directory when somebody asks. Nothing here needs torch.

The file (trainer/tensors.py) is data: its header is checked by safetensors, its bounds here, and whatever is wrong with it is said.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer

from trainer.rundir import RunDirectory
from webapp.episodes.models import Episode

TOKENS_SHOWN = 4_000  # of one turn
TOKENIZER_BYTES = 64 * 1024**2
BUILTIN = "builtin:starter"
_BUILTIN_TOKENIZER = Path(__file__).resolve().parents[2] / "trainer" / "starter" / "model" / "tokenizer.json"


class TokensMissing(Exception):
    """There are no tokens to show; the text says why."""


@dataclass(frozen=True, slots=True)
class Token:
    """One sampled token: text "" where the tokenizer is not at hand; ``logprob`` is the sampler's."""

    id: int
    text: str
    logprob: float


@dataclass(frozen=True, kw_only=True)
class TurnTokens:
    """Sampled tokens (mask 1) of one turn, and how many masked ones (prompt, observation, template) stand before them."""

    tokens: list[Token]
    total: int
    masked_before: int

    @property
    def mean(self) -> float | None:
        """Mean log-prob of all shown tokens, None without any."""
        return sum(token.logprob for token in self.tokens) / len(self.tokens) if self.tokens else None

    @property
    def is_cut(self) -> bool:
        """Only the first TOKENS_SHOWN are here."""
        return self.total > len(self.tokens)


def read_turn_tokens(*, episode: Episode, turn: int) -> TurnTokens:
    """The tokens of one turn, counted from 0. Raises TokensMissing."""
    if episode.superseded or episode.rollout is None:
        raise TokensMissing("A resume repeated this rollout, and its token file was written anew by the later attempt.")
    path = RunDirectory(Path(episode.run.directory)).tensors(episode.rollout)
    if not path.is_file():
        raise TokensMissing(
            "The run directory has no token file of this rollout: it is written when the rollout ends, "
            "and removed when it is older than the retention settings allow."
        )
    try:
        with safe_open(path, framework="numpy") as file:
            rows = _rows_of(json.loads((file.metadata() or {})["samples"]), episode.key)
            turns = _turns(file, rows)
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise TokensMissing(f"The token file of rollout {episode.rollout} cannot be read: {error}") from error
    if not 0 <= turn < len(turns):
        raise TokensMissing(
            f"The token file holds {len(turns)} sampled replies of this episode, none of turn {turn + 1}."
        )
    masked, sampled = turns[turn]
    decode = _decoder(episode)
    shown = [Token(token, decode(token), logprob) for token, logprob in sampled[:TOKENS_SHOWN]]
    return TurnTokens(tokens=shown, total=len(sampled), masked_before=masked)


def _rows_of(samples: Sequence[dict[str, Any]], key: str) -> list[tuple[int, int]]:
    """Bounds of the episode's rows: one, or one per turn where thinking made each turn a row of its own."""
    own = [sample for sample in samples if sample["name"] == key]
    if not own:
        numbered = [
            sample
            for sample in samples
            if sample["name"].rpartition("/")[0] == key and sample["name"].rpartition("/")[2].isdecimal()
        ]
        own = sorted(numbered, key=lambda sample: int(sample["name"].rpartition("/")[2]))
    if not own:
        raise KeyError(f"no sample is called {key}")
    return [(int(sample["tokens"][0]), int(sample["tokens"][1])) for sample in own]


def _turns(file: Any, rows: Sequence[tuple[int, int]]) -> list[tuple[int, list[tuple[int, float]]]]:
    """(masked tokens before, [(id, log-prob)]) of each unbroken stretch of sampled tokens: one stretch is one reply."""
    turns: list[tuple[int, list[tuple[int, float]]]] = []
    ids, masks, logprobs = (file.get_slice(name) for name in ("token_ids", "mask", "sampler_logprobs"))
    size = ids.get_shape()[0]
    for start, end in rows:
        if not 0 <= start <= end <= size:
            raise ValueError(f"a sample from {start} to {end} in an array of {size}")
        masked = 0
        triples = zip(ids[start:end].tolist(), masks[start:end].tolist(), logprobs[start:end].tolist(), strict=True)
        for is_sampled, stretch in groupby(triples, key=lambda triple: bool(triple[1])):
            found = [(int(token), float(logprob)) for token, _, logprob in stretch]
            if is_sampled:
                turns.append((masked, found))
                masked = 0
            else:
                masked = len(found)
    return turns


def _decoder(episode: Episode) -> Any:
    """What turns an id into its text; always "" when there is no tokenizer at hand."""
    for path in _tokenizer_files(episode):
        if path.is_file() and path.stat().st_size <= TOKENIZER_BYTES:
            tokenizer = _tokenizer(path, path.stat().st_mtime_ns)
            return lambda token: tokenizer.decode([token], skip_special_tokens=False)
    return lambda token: ""


def _tokenizer_files(episode: Episode) -> list[Path]:
    checkpoints = RunDirectory(Path(episode.run.directory)).checkpoints
    found = sorted(checkpoints.glob("[0-9]*/model/tokenizer.json"), reverse=True) if checkpoints.is_dir() else []
    named = str(episode.run.config.get("model", {}).get("path", ""))
    return [*found[:1], _BUILTIN_TOKENIZER if named == BUILTIN else Path(named) / "tokenizer.json"]


@lru_cache(maxsize=4)
def _tokenizer(path: Path, _changed_ns: int) -> Tokenizer:
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises Exception itself, and nothing narrower
        raise TokensMissing(f"The tokenizer of this run cannot be read: {error}") from error
