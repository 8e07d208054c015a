"""Tokens and log-probs of a turn, finding in a transcript, permalinks into long ones, any two episodes side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from tests.pages.test_environments_and_episodes import transcript_of


@pytest.fixture
def episode(run: Any) -> Any:
    found = run.episodes.filter(superseded=False, rollout=1).first()
    transcript_of(found, [{"observation": "start", "reply": "ab"}, {"observation": "more", "reply": "c"}])
    return found


def write_tokens(run: Any, rollout: int, samples: list[tuple[str, list[int], list[int], list[float]]]) -> Path:
    """The trainer's own writer."""
    from trainer.rundir import RunDirectory
    from trainer.tensors import TensorFile

    file = TensorFile()
    for name, ids, mask, logprobs in samples:
        file.add(name, "agent", prompt_ids=[1, 2], token_ids=ids, mask=mask, logprobs=logprobs, arm="unhinted")
    path = RunDirectory(Path(run.directory)).tensors(rollout)
    file.write(path)
    return path


def test_the_tokens_of_a_turn_are_its_stretch_of_mask_1(run: Any, episode: Any) -> None:
    from webapp.episodes.tokens import read_turn_tokens

    write_tokens(
        run,
        1,
        [("other", [9], [1], [-9.0]), (episode.key, [11, 12, 13, 14, 15], [1, 1, 0, 0, 1], [-0.5, -1.5, 0, 0, -2.0])],
    )
    first, second = (read_turn_tokens(episode=episode, turn=turn) for turn in (0, 1))
    assert [(token.id, token.logprob) for token in first.tokens] == [(11, -0.5), (12, -1.5)]
    assert (first.masked_before, first.mean) == (0, -1.0)
    assert [(token.id, token.logprob) for token in second.tokens] == [(15, -2.0)]
    assert second.masked_before == 2


def test_where_each_turn_is_a_row_of_its_own_the_rows_are_the_turns(run: Any, episode: Any) -> None:
    from webapp.episodes.tokens import read_turn_tokens

    write_tokens(run, 1, [(f"{episode.key}/{turn}", [20 + turn], [1], [-1.0 * turn]) for turn in range(11)])
    assert [read_turn_tokens(episode=episode, turn=turn).tokens[0].id for turn in (2, 10)] == [22, 30]


def test_what_is_missing_is_said_and_never_a_number(run: Any, episode: Any, viewer: Client) -> None:
    address = f"/runs/{run.pk}/episodes/{episode.pk}/tokens/?turn="
    assert "written when the rollout ends" in viewer.get(f"{address}0").content.decode()
    path = write_tokens(run, 1, [(episode.key, [11], [1], [-0.5])])
    assert "none of turn 2" in viewer.get(f"{address}1").content.decode()
    assert "−0.500" in viewer.get(f"{address}0").content.decode()
    path.write_bytes(path.read_bytes()[:40])
    assert "cannot be read" in viewer.get(f"{address}0").content.decode()
    episode.superseded = True
    episode.save()
    assert "written anew by the later attempt" in viewer.get(f"{address}0").content.decode()
    assert viewer.get(f"/runs/{run.pk}/episodes/{episode.pk}/tokens/").status_code == 400


def test_a_file_whose_bounds_lie_is_refused(run: Any, episode: Any) -> None:
    import json

    import numpy as np
    from safetensors.numpy import save_file

    from webapp.episodes.tokens import TokensMissing, read_turn_tokens

    path = write_tokens(run, 1, [(episode.key, [11], [1], [-0.5])])
    samples = json.dumps([{"name": episode.key, "role": "agent", "arm": "", "prompt": [0, 0], "tokens": [0, 500]}])
    arrays = {
        "prompt_ids": np.zeros(1, "i4"),
        "token_ids": np.zeros(1, "i4"),
        "mask": np.ones(1, "u1"),
        "sampler_logprobs": np.zeros(1, "f4"),
    }
    save_file(arrays, path, metadata={"samples": samples})
    with pytest.raises(TokensMissing, match="from 0 to 500 in an array of 1"):
        read_turn_tokens(episode=episode, turn=0)


def test_the_text_of_tokens_comes_from_the_models_tokenizer_and_is_escaped(
    run: Any, episode: Any, viewer: Client
) -> None:
    from tokenizers import Tokenizer

    from webapp.episodes.tokens import _BUILTIN_TOKENIZER

    run.config["model"]["path"] = "builtin:starter"
    run.save(update_fields=["config"])
    ids = Tokenizer.from_file(str(_BUILTIN_TOKENIZER)).encode("a < b", add_special_tokens=False).ids
    write_tokens(run, 1, [(episode.key, ids, [1] * len(ids), [-0.01, *[-5.0] * (len(ids) - 1)])])
    html = viewer.get(f"/runs/{run.pk}/episodes/{episode.pk}/tokens/?turn=0").content.decode()
    assert "&lt;" in html
    assert 'class="token p0"' in html
    assert 'class="token p4"' in html


def test_finding_names_turn_and_part_with_what_stands_around(run: Any, episode: Any, viewer: Client) -> None:
    from webapp.episodes.finding import find_in_transcript

    transcript_of(
        episode, [{"observation": "a Needle <b>", "reply": "no"}, {"observation": "x", "reply": "the nEEDLe"}]
    )
    hits = find_in_transcript(episode=episode, text="needle")
    assert [(hit.position, hit.part, hit.before, hit.match, hit.after) for hit in hits] == [
        (1, "observation", "a ", "Needle", " <b>"), (2, "reply", "the ", "nEEDLe", ""),
    ]  # fmt: skip
    html = viewer.get(f"/runs/{run.pk}/episodes/{episode.pk}/?find=needle").content.decode()
    assert "<mark>Needle</mark> &lt;b&gt;" in html
    assert "?turn=2&amp;find=needle#t2" in html


@pytest.mark.parametrize("text", ["100%", "a_b", "' OR 1=1 --", "\\"])
def test_what_is_looked_for_is_text_and_no_pattern(text: str, run: Any, episode: Any) -> None:
    from webapp.episodes.finding import find_in_transcript

    transcript_of(episode, [{"observation": "100 axb", "reply": f"<{text}>"}])
    assert [(hit.part, hit.match) for hit in find_in_transcript(episode=episode, text=text)] == [("reply", text)]


def test_a_permalink_opens_a_long_transcript_at_its_turn(run: Any, episode: Any, viewer: Client) -> None:
    transcript_of(episode, [{"observation": f"see {index}.", "reply": "x"} for index in range(5000)], final="the end")
    html = viewer.get(f"/runs/{run.pk}/episodes/{episode.pk}/?turn=4321").content.decode()
    assert 'id="t4321"' in html
    assert "see 4320." in html
    assert "see 4100." not in html
    assert 'href="?turn=4001#t4001"' in html
    assert "the end" in viewer.get(f"/runs/{run.pk}/episodes/{episode.pk}/?turn=99999").content.decode()


def test_any_two_episodes_stand_side_by_side_with_their_first_difference(run: Any, viewer: Client) -> None:
    one, other = list(run.episodes.filter(arm="unhinted", superseded=False).order_by("pk")[:2])
    transcript_of(one, [{"observation": "start", "reply": "go"}, {"observation": "then", "reply": "left"}])
    transcript_of(other, [{"observation": "start", "reply": "go"}, {"observation": "then", "reply": "right"}])
    answer = viewer.get(f"/runs/{run.pk}/beside/?left={one.pk}&right={other.key}")
    assert [row.first_difference for row in answer.context["aligned"]] == ["", "action"]
    assert 'id="difference"' in answer.content.decode()
    assert viewer.get(f"/runs/{run.pk}/beside/?left={one.pk}&right=nothing").status_code == 404
    assert viewer.get(f"/runs/{run.pk}/beside/").status_code == 404
