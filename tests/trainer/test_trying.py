"""`python -m trainer try`: the built-in model, really loaded in a process of its own, chats and plays over JSON lines."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from tests.trainer.starter_run import add_checkpoint, make, program
from trainer.address_space import ran_short
from trainer.creation import read_config
from trainer.eventlog import read_events
from trainer.rundir import RunDirectory
from trainer.trying import talk as talking
from trainer.trying.protocol import MESSAGES

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
SMALL = (
    "schedule.rollouts=1",
    "schedule.environments=2",
    "schedule.plays=2",
    "schedule.hinted_plays=2",
    "engine.threads=1",
)


def trainer(*arguments: str, said: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "trainer", *arguments]
    return subprocess.run(command, cwd=ROOT, input=said, capture_output=True, text=True, timeout=300, check=False)


def talk(
    run: RunDirectory, *lines: str | dict[str, Any], checkpoint: str = "latest", more: tuple[str, ...] = ()
) -> list[dict[str, Any]]:
    """What a talk of these lines answers."""
    said = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    done = trainer(
        "try", str(run.root), "--checkpoint", checkpoint, "--device", "cpu", "--threads", "1", *more, said=said
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def chat(*messages: str, **more: Any) -> dict[str, Any]:
    roles = ["user" if at % 2 == 0 else "assistant" for at in range(len(messages))]
    spoken = [{"role": role, "content": text} for role, text in zip(roles, messages, strict=True)]
    return {"do": "chat", "id": "c", "messages": spoken, "max_new_tokens": 12, "seed": 5, **more}


FAULTY = """class FaultyEnv:
    def __init__(self, **options): pass
    def reset(self, seed=None): return 1 / 0
    def step(self, action): pass
"""
PLAY = {"do": "play", "id": "p", "environment": "r0000-s00", "seed": 7}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return make(tmp_path_factory.mktemp("try") / "run")


@pytest.fixture(scope="module")
def answers(run: RunDirectory) -> list[dict[str, Any]]:
    """One talk: chats, plays in both arms, and what is refused in between without ending it."""
    return talk(
        run, chat("Hello"), chat("Hello"), chat("Hello", "Hi.", "Again", temperature=0.2), {**chat("Hello"), "seed": 6},
        PLAY, {**PLAY, "id": "h", "arm": "hinted"}, {**PLAY, "id": "again"},
        "{broken", {**PLAY, "id": "up", "environment": ".."}, {**PLAY, "id": "gone", "environment": "r0099-s00"},
        chat("x " * 2000, id="long"), chat("Hello", "Hi.", id="turns"), chat("Hello", id="hot", temperature=9),
        {**PLAY, "id": "none", "arm": "hinted", "code": "class E: pass"},
        {**PLAY, "id": "faulty", "code": FAULTY},
        "How are you?", "And now?", "", "How are you?", {"do": "end", "id": "e"}, chat("never read"),
    )  # fmt: skip


def of(answers: list[dict[str, Any]], request_id: str, kind: str = "") -> list[dict[str, Any]]:
    return [one for one in answers if one["id"] == request_id and kind in ("", one["kind"])]


def test_the_first_line_says_what_the_model_is(answers: list[dict[str, Any]]) -> None:
    ready = answers[0]
    assert (ready["kind"], ready["checkpoint"], ready["prompts"]) == ("ready", "000001", "compact")
    assert (ready["context_tokens"], ready["reply_tokens"], ready["temperature"]) == (1024, 959, 1.0)
    assert ready["engine"]["name"] == "builtin" and ready["engine"]["parameters"] > 1_000_000


def test_a_reply_tells_what_it_took(answers: list[dict[str, Any]]) -> None:
    first, again, longer, other = of(answers, "c", "reply")
    assert 1 <= first["reply_tokens"] <= 12 and first["finish"] in ("stop", "length") and first["elapsed_s"] > 0
    assert (first["text"], first["seed"]) == (again["text"], 5)
    assert longer["prompt_tokens"] > first["prompt_tokens"]
    assert other["seed"] == 6


def test_a_play_is_told_turn_by_turn(answers: list[dict[str, Any]]) -> None:
    told = of(answers, "p")
    assert [told[0]["kind"], told[-1]["kind"]] == ["opened", "played"]
    turns = of(answers, "p", "turn")
    assert [one["number"] for one in turns] == list(range(len(turns))) and turns
    assert told[0]["observation"] == turns[0]["turn"]["observation"]
    played = told[-1]
    assert (played["seed"], played["arm"], played["environment"]) == (7, "unhinted", "r0000-s00")
    assert played["status"] in ("won", "lost", "turn_limit", "truncated_by_env", "length")
    assert played["sandbox_tier"] and played["reward"] is not None
    again = [one["turn"] for one in of(answers, "again", "turn")]  # with what the first one left in the caches
    assert without_digits(again, {"turns": [one["turn"] for one in turns]}) == [one["turn"] for one in turns]


def test_the_hint_is_injected_as_in_a_run(answers: list[dict[str, Any]], run: RunDirectory) -> None:
    hint = (run.environment("r0000-s00") / "hint.txt").read_text()
    opened, unhinted = of(answers, "h", "opened")[0], of(answers, "p", "opened")[0]
    assert opened["observation"] == f"{unhinted['observation']}\n\nHINT: {hint}"


def test_what_cannot_be_done_is_refused_and_the_talk_goes_on(answers: list[dict[str, Any]]) -> None:
    refused = {one["id"]: one["message"] for one in answers if one["kind"] == "refused"}
    assert set(refused) == {"", "up", "gone", "long", "turns", "hot", "none"}
    assert "not JSON" in refused[""]
    assert "environment" in refused["up"]
    assert "no environment r0099-s00" in refused["gone"]
    assert "no room for a reply" in refused["long"] and "new conversation" in refused["long"]
    assert "the last message is the user's" in refused["turns"]
    assert "temperature" in refused["hot"]
    assert "has no hint" in refused["none"]


def test_a_program_that_fails_is_a_fault_and_no_reward(answers: list[dict[str, Any]]) -> None:
    (played,) = of(answers, "faulty")
    assert (played["kind"], played["status"], played["reward"]) == ("played", "env_error", None)
    assert "ZeroDivisionError" in played["fault"] or "division" in played["fault"]


def test_plain_lines_are_one_conversation_until_an_empty_one(answers: list[dict[str, Any]]) -> None:
    first, second, fresh = [one for one in answers if one["kind"] == "reply" and one["id"] == ""]
    assert second["prompt_tokens"] > first["prompt_tokens"] == fresh["prompt_tokens"]
    assert answers[-1] == fresh  # `end` ended it


def test_programs_of_a_pool_are_played_instead_of_the_runs(run: RunDirectory, tmp_path: Path) -> None:
    code, hint = program("r0000-s00")
    line = {"id": "hour rule/1", "code": code, "hint": hint}
    (tmp_path / "pool.jsonl").write_text(json.dumps(line) + "\n")
    ready, *told = talk(
        run, {**PLAY, "environment": "hour rule/1", "arm": "hinted"}, {**PLAY, "id": "gone"},
        more=("--pool", str(tmp_path / "pool.jsonl")),
    )  # fmt: skip
    assert (ready["programs"], ready["environments"]) == (1, ["hour rule/1"])
    opened, played = of(told, "p", "opened")[0], of(told, "p", "played")[0]
    assert opened["observation"].endswith(f"HINT: {hint}")
    assert (played["environment"], played["reward"] is not None) == ("hour rule/1", True)
    assert "no environment 'r0000-s00'; it has hour rule/1" in of(told, "gone", "refused")[0]["message"]


def test_a_pool_that_is_none_is_one_line_before_anything_is_loaded(run: RunDirectory, tmp_path: Path) -> None:
    done = trainer("try", str(run.root), "--pool", str(tmp_path / "nowhere"))
    assert done.returncode != 0 and done.stdout == ""
    assert "--pool" in done.stderr and "does not exist" in done.stderr and "Traceback" not in done.stderr


def test_it_plays_as_the_run_played(tmp_path: Path) -> None:
    """The weights a run started with, tried with the run's seeds, give the episodes of its first rollout."""
    played = RunDirectory(tmp_path / "run")
    options = [part for setting in SMALL for part in ("--set", setting)]
    assert trainer("run", str(played.root), "--preset", "demo-fixed-pool", *options).returncode == 0
    add_checkpoint(played, "000000", read_config(played))
    episodes = [event["payload"] for event in read_events(played, 1) if event["kind"] == "episode"]
    assert len(episodes) >= 4
    requests = [
        {"do": "play", "id": one["episode"], **{name: one[name] for name in ("environment", "seed", "arm", "play")}}
        for one in episodes
    ]
    told = talk(played, *requests, checkpoint="000000")
    same = [
        one["turns"] == without_digits([t["turn"] for t in of(told, one["episode"], "turn")], one) for one in episodes
    ]
    # Episodes share a batch in the run and not here, which may round a log-prob otherwise; a draw at its very edge may differ.
    assert sum(same) >= len(same) - 1


def without_digits(turns: list[dict[str, Any]], episode: dict[str, Any]) -> list[dict[str, Any]]:
    """The turns with the run's mean log-probs where both agree to four digits."""
    for mine, theirs in zip(turns, episode["turns"], strict=False):
        if mine["logprob_mean"] == pytest.approx(theirs["logprob_mean"], abs=1e-4):
            mine["logprob_mean"] = theirs["logprob_mean"]
    return turns


@pytest.mark.parametrize(
    ("harm", "checkpoint", "expected"),
    [
        (lambda folder: (folder / "model" / "model.safetensors").write_bytes(b"no weights"), "1", "does not have the recorded content"),
        (lambda folder: (folder / "model" / "model.safetensors").unlink(), "1", "model.safetensors is missing"),
        (lambda folder: (folder / "COMPLETE").unlink(), "latest", "has no whole checkpoint"),
        (shutil.rmtree, "000001", "has no checkpoint 000001"),
    ],
)  # fmt: skip
def test_a_checkpoint_that_is_broken_or_gone_is_one_line(
    harm: Any, checkpoint: str, expected: str, tmp_path: Path
) -> None:
    run = make(tmp_path / "run")
    harm(run.checkpoints / "000001")
    done = trainer("try", str(run.root), "--checkpoint", checkpoint)
    assert (done.returncode, done.stdout) == (2, "")
    assert expected in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "mib", [500, 600, 700, 750]
)  # where it runs short differs: a file's digest, an import, the weights
def test_too_little_memory_is_a_limit_and_not_a_traceback(mib: int, tmp_path: Path) -> None:
    run = make(tmp_path / "run")
    done = trainer("try", str(run.root), "--device", "cpu", "--memory-bytes", str(mib * 1024**2))
    assert (done.returncode, done.stdout) == (4, "")
    assert "does not fit the memory it may use" in done.stderr and "Traceback" not in done.stderr


def test_an_error_is_laid_to_the_memory_only_where_it_is_nearly_taken() -> None:
    assert ran_short(MemoryError(), 0) and ran_short(RuntimeError("DefaultCPUAllocator: can't allocate memory"), 0)
    assert ran_short(SystemError("error return without exception set"), 1)
    assert not ran_short(SystemError("error return without exception set"), 2**50)
    assert not ran_short(SystemError("error return without exception set"), 0)
    assert not ran_short(KeyError("x"), 1)


def test_a_long_conversation_at_a_terminal_goes_on_with_its_newest_messages() -> None:
    asked: list[Any] = []

    class Tried:
        def reply(self, chat: Any) -> dict[str, str]:
            asked.append(chat)
            return {"text": "hm"}

    told: list[Any] = []
    talking.talk(cast("Any", Tried()), iter(["hello"] * 150), told.append)
    assert len(asked) == len(told) == 150
    assert len(asked[-1].messages) == MESSAGES - 1
    assert {chat.messages[0].role for chat in asked} == {chat.messages[-1].role for chat in asked} == {"user"}
