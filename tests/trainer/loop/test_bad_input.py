"""What a person can get wrong, and a machine can run out of: each ends with one message that says what to do."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import resource
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from tests.trainer.fakes import FakeEngines, byte_tokenizer, fake_config
from tests.trainer.tiny_model import CHATML, save_tiny_model, tiny_model, tiny_tokenizer
from trainer.__main__ import main
from trainer.checkpoint_files import damage
from trainer.config import RunConfig
from trainer.engines import open_engines
from trainer.errors import NotFiniteError, UserError
from trainer.eventlog import read_events
from trainer.learn.engine import TrainRow
from trainer.presets import load_preset, preset_names, with_overrides
from trainer.run import Engines, attempt, create
from trainer.rundir import RunDirectory


def refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], *settings: str) -> str:
    """What the command line says about a run with these settings. It must be wrong input, also in the log of the run."""
    arguments = [part for setting in settings for part in ("--set", setting)]
    assert main(["run", str(tmp_path / "run"), "--preset", "tiny", *arguments]) == 2
    said = capsys.readouterr().err
    assert "Traceback" not in said
    last = list(read_events(RunDirectory(tmp_path / "run"), 1))[-1]["payload"]
    assert (last["state"], last["owner"]) == ("failed", "user") and last["reason"] in said
    return said


def test_an_unknown_model_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(tmp_path, capsys, f"model.path={tmp_path}/nowhere")
    assert (
        f"model.path: {tmp_path}/nowhere does not exist. Give a Hugging Face model directory or 'builtin:starter'."
        in said
    )


def test_a_terminal_says_why_a_run_failed_once_and_a_file_as_well(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "trainer", "run", str(tmp_path / "run"), "--set", f"model.path={tmp_path}/nowhere"]
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 400, 0, 0))
    done = subprocess.run(command, stdin=theirs, stdout=theirs, stderr=theirs, check=False)
    os.close(theirs)
    shown = b""
    with suppress(OSError):  # EIO: the other side is closed
        while more := os.read(ours, 65536):
            shown += more
    os.close(ours)
    assert done.returncode == 2
    assert shown.count(b"does not exist") == 1 and b"run failed" in shown and b"trainer: user:" in shown
    assert "does not exist" in (tmp_path / "run" / "log.txt").read_text()
    redirected = subprocess.run(
        [*command[:4], str(tmp_path / "again"), *command[5:]], capture_output=True, text=True, check=False
    )
    assert "does not exist" in redirected.stdout and "does not exist" in redirected.stderr


def test_a_run_goes_on_when_nobody_reads_what_it_prints(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.trainer.make_run", str(tmp_path / "run"), "--rollouts", "1"]
    ours, theirs = os.pipe()
    os.close(ours)  # as `| head -1` does after one line
    done = subprocess.run(command, stdout=theirs, stderr=subprocess.PIPE, text=True, check=False)
    os.close(theirs)
    assert (done.returncode, done.stderr) == (0, "")
    assert list(read_events(RunDirectory(tmp_path / "run"), 1))[-1]["payload"]["state"] == "completed"
    assert "run completed" in (tmp_path / "run" / "log.txt").read_text()


def test_a_failure_is_logged_when_nobody_reads_stderr_either(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "trainer", "run", str(tmp_path / "run"), "--set", f"model.path={tmp_path}/nowhere"]
    ours, theirs = os.pipe()
    os.close(ours)
    done = subprocess.run(command, stdout=theirs, stderr=theirs, check=False)
    os.close(theirs)
    last = list(read_events(RunDirectory(tmp_path / "run"), 1))[-1]["payload"]
    assert (done.returncode, last["state"], last["owner"]) == (2, "failed", "user")


def test_a_terminal_that_is_closed_ends_no_run(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.trainer.make_run", str(tmp_path / "run"), "--rollouts", "1"]
    ours, theirs = pty.openpty()
    os.close(ours)  # writing to the other side is an input/output error
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(theirs)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert list(read_events(RunDirectory(tmp_path / "run"), 1))[-1]["payload"]["state"] == "completed"


def test_a_tokenizer_without_chat_template(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = None
    tokenizer.save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "config.json").write_text('{"model_type": "qwen3"}')
    save_file({"w": torch.zeros(1)}, tmp_path / "model" / "model.safetensors")
    said = refused(tmp_path, capsys, f"model.path={tmp_path}/model")
    assert "the tokenizer has no chat template. Use an instruct model, or save one with the tokenizer." in said


@pytest.mark.parametrize("beyond", ["control", "text"])
def test_a_tokenizer_with_more_ids_than_the_model_has_embeddings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], beyond: str
) -> None:
    tokenizer = tiny_tokenizer()
    embeddings = len(tokenizer) if beyond == "control" else len(tokenizer) - 1
    if beyond == "control":
        tokenizer.add_special_tokens({"additional_special_tokens": ["<|a|>", "<|b|>", "<|turn|>"]})
        tokenizer.chat_template = CHATML.replace("<|im_start|>", "<|turn|>")
    tiny_model(vocab=embeddings).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    said = refused(tmp_path, capsys, f"model.path={tmp_path}/model")
    largest = len(tokenizer) - 1
    assert f"has ids up to {largest}, but the model has {embeddings} embeddings" in said
    assert f"model.resize_token_embeddings({largest + 1})" in said


def test_added_tokens_without_embeddings_that_the_chat_template_never_writes_do_no_harm(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    tiny_model(vocab=len(tokenizer)).save_pretrained(tmp_path / "model")
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|image|>"]})
    tokenizer.save_pretrained(tmp_path / "model")
    small = {"model.context_tokens": 2048, "designer.max_tokens": 64, "hint.max_tokens": 64, "agent.max_tokens": 64}
    config = with_overrides(load_preset("tiny"), {"model.path": str(tmp_path / "model"), "engine.threads": 1, **small})
    engines = open_engines(config, {})
    engines.learner.close()
    engines.sampler.close()


@pytest.mark.parametrize("setting", ["corpus.source", "pool.path", "model.path"])
@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("~nosuchuser/x", "~nosuchuser/x: there is no home directory of that user"),
        ("/" + "x" * 300, f"/{'x' * 99}… (301 characters) cannot be used: File name too long"),
        ("nowhere/\0", "does not exist"),
        (" ", "is empty: give a path"),
    ],
    ids=["home", "long", "nul", "blank"],
)
def test_a_path_that_can_be_none_on_this_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], setting: str, path: str, says: str
) -> None:
    untrained = ("designer.train=false",) if setting == "pool.path" else ()
    said = refused(tmp_path, capsys, f"{setting}={path}", *untrained)
    assert f"trainer: user: {setting}" in said and says in said


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("config.json", "3", "config.json does not describe a model"),
        ("config.json", '{"model_type": "qwen3", "hidden_size": "wide"}', "config.json does not describe a model"),
        ("tokenizer.json", "[]", "model has no tokenizer this version can load"),
        ("model.safetensors.index.json", "{}", "model.safetensors.index.json is no index of weight files"),
    ],
)
def test_a_malformed_file_of_a_model_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str, says: str
) -> None:
    directory = save_tiny_model(tmp_path / "model")
    (directory / name).write_text(text)
    assert says in refused(tmp_path, capsys, f"model.path={directory}")


def test_an_empty_corpus_source_is_not_the_working_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here.txt").write_text("a text")
    monkeypatch.chdir(tmp_path)
    assert "corpus.source is empty: give a path" in refused(tmp_path, capsys, "corpus.source=")


def test_an_empty_corpus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    said = refused(tmp_path, capsys, f"corpus.source={tmp_path}/empty.jsonl")
    assert 'holds no usable document (it is empty); a JSONL line needs text under "orig_doc" or "text"' in said


def test_a_corpus_with_no_usable_line_counts_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.jsonl").write_text('{"title": "x"}\n\nnot json\n{"text": "  "}\n[]\n')
    said = refused(tmp_path, capsys, f"corpus.source={tmp_path}/bad.jsonl")
    assert "(1 blank lines, 1 lines that are not objects, 2 lines without text, 1 undecodable lines)" in said


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ({"schedule.active_skills": 7}, ("schedule.active_skills", "schedule.skills")),
        ({"schedule.designer_delay": 1}, ("schedule.designer_delay", "schedule.regenerate_every")),
        ({"reward.band_low": 0.9}, ("reward.band_low", "reward.band_high")),
        ({"memory.band_low": 0.9}, ("memory.band_low", "memory.band_high")),
        ({"designer.max_tokens": 4000, "model.context_tokens": 4000}, ("designer.max_tokens", "model.context_tokens")),
        ({"agent.max_tokens": 4000, "model.context_tokens": 4000}, ("agent.max_tokens", "model.context_tokens")),
        ({"hint.max_tokens": 4000, "model.context_tokens": 4000}, ("hint.max_tokens", "model.context_tokens")),
        ({"reward.gamma_fast": 0.5}, ("reward.gamma_fast", "reward.gamma_slow")),
        ({"schedule.hinted_plays": 0}, ("schedule.hinted_plays", "reward.variant")),
        ({"checkpoint.best_metric": "beauty"}, ("checkpoint.best_metric", "beauty")),
    ],
)
def test_contradictory_settings_are_refused_by_both_names(values: dict[str, Any], names: tuple[str, str]) -> None:
    with pytest.raises(UserError) as caught:
        with_overrides(load_preset("tiny"), values)
    assert all(name in str(caught.value) for name in names)


def test_a_designer_that_cannot_learn_is_warned_of_at_the_start(tmp_path: Path) -> None:
    run = create(tmp_path / "run", fake_config(schedule__environments=2, schedule__rollouts=1))  # two skills are active
    assert attempt(run, FakeEngines()) == 0
    events = list(read_events(run, 1))
    (warned,) = [e["payload"] for e in events if e["kind"] == "warning"]
    assert warned["where"] == "settings"
    assert "schedule.environments 2 and schedule.active_skills 2" in warned["message"]
    assert "Set schedule.environments to three times schedule.active_skills or more" in warned["message"]
    rewards = [e["payload"]["reward"] for e in events if e["kind"] == "designer_reward"]
    assert rewards == [0.0, 0.0], "every one is the mean of its skill"


def test_settings_under_which_the_designer_learns_or_is_not_trained_need_no_warning() -> None:
    assert [name for name in preset_names() if load_preset(name).warnings()] == []
    assert fake_config(schedule__environments=2, designer__train=False).warnings() == ()


def test_a_context_too_small_for_the_prompt(tmp_path: Path) -> None:
    small = {"model__context_tokens": 256, "designer__max_tokens": 64, "hint__max_tokens": 64, "agent__max_tokens": 64}
    run = create(tmp_path / "run", fake_config(**small))
    assert attempt(run, FakeEngines()) == 2
    events = list(read_events(run, 1))
    reason = events[-1]["payload"]["reason"]
    longest = max(e["payload"]["prompt_tokens"] for e in events if e["kind"] == "candidate")
    assert "model.context_tokens 256 is too small" in reason and f"the longest takes {longest} tokens" in reason
    assert "Raise model.context_tokens, or lower corpus.max_words" in reason


def test_a_run_killed_before_its_settings_were_in_place_can_be_started_again(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json.part").write_text('{"config": {"half')
    (tmp_path / "run" / "control.jsonl").write_text("")
    run = create(tmp_path / "run", fake_config())
    assert json.loads(run.config.read_text())["config"]["preset"] == "tiny"
    assert sorted(p.name for p in run.root.iterdir()) == ["config.json", "control.jsonl"]


class BigEngines(FakeEngines):
    """From the third checkpoint on, weights or optimiser state are 4 MB, and the kernel takes no file above 1 MB."""

    def __init__(self, part: str) -> None:
        super().__init__()
        self.part = part

    def __call__(self, config: RunConfig, known: Mapping[str, Any]) -> Engines:
        engines = super().__call__(config, known)
        learner, big = self.learner, torch.zeros(1_000_000)
        save_model, state = learner.save_model, learner.state

        def save(directory: Path) -> None:
            save_model(directory)
            if learner.updates >= 3:
                resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))
                if self.part == "weights":
                    save_file({"skill": learner.skill, "big": big}, directory / "model.safetensors")

        learner.save_model = save  # type: ignore[method-assign]
        if self.part == "optimiser":
            learner.state = lambda: {**state(), "big": big}  # type: ignore[method-assign]
        return engines


@pytest.fixture
def file_size_limit() -> Any:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.usefixtures("file_size_limit")
@pytest.mark.parametrize("part", ["weights", "optimiser"])
def test_a_disk_that_fills_up_during_a_save_leaves_the_checkpoint_before_it(tmp_path: Path, part: str) -> None:
    run = create(tmp_path / "run", fake_config(schedule__rollouts=4))
    assert attempt(run, BigEngines(part)) == 4
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    last = list(read_events(run, 1))[-1]["payload"]
    assert last["owner"] == "limit"
    assert last["reason"].startswith("no space left while writing checkpoint 000003")
    assert "free some space and resume; the last checkpoint is whole" in last["reason"]
    assert "000003" not in [p.name for p in run.checkpoints.iterdir()] and not list(run.checkpoints.glob("tmp-*"))
    assert damage(run.checkpoint(2)) == ""
    assert attempt(run, FakeEngines()) == 0
    assert next(read_events(run, 2))["payload"]["start_rollout"] == 2


class NotFinite(FakeEngines):
    """The updates of some rollouts are not finite."""

    def __init__(self, *rollouts: int) -> None:
        super().__init__()
        self.rollouts = rollouts

    def __call__(self, config: RunConfig, known: Mapping[str, Any]) -> Engines:
        engines = super().__call__(config, known)
        update: Callable[..., Mapping[str, float | None]] = self.learner.update

        def sometimes(rows: Sequence[TrainRow], *, rollout: int) -> Mapping[str, float | None]:
            if rollout in self.rollouts:
                raise NotFiniteError("the loss is nan")
            return update(rows, rollout=rollout)

        self.learner.update = sometimes  # type: ignore[method-assign]
        return engines


def weights_at(run: RunDirectory, number: int) -> bytes:
    return (run.checkpoint(number) / "model" / "model.safetensors").read_bytes()


def test_an_update_that_is_not_finite_is_skipped_and_the_last_good_weights_stay(tmp_path: Path) -> None:
    run = create(tmp_path / "run", fake_config(checkpoint__keep_every=1, schedule__rollouts=4))
    assert attempt(run, NotFinite(1)) == 0
    events = list(read_events(run, 1))
    (warned,) = [e for e in events if e["kind"] == "warning"]
    assert warned["rollout"] == 1
    assert "update was skipped, the last good weights are kept: the loss is nan" in warned["payload"]["message"]
    assert weights_at(run, 2) == weights_at(run, 1) and weights_at(run, 3) != weights_at(run, 2)
    values = [e["payload"]["values"] for e in events if e["kind"] == "metrics"]
    assert [v["optim/skipped"] for v in values] == [0, 1, 0, 0]
    assert values[1]["loss/total"] is None and values[1]["samples/agent"] > 0


def test_three_updates_in_a_row_that_are_not_finite_end_the_run_also_across_a_resume(tmp_path: Path) -> None:
    run = create(tmp_path / "run", fake_config(checkpoint__keep_every=1))
    run.control.write_text("")
    engines = NotFinite(0, 2, 3, 4)

    def stop_after_two(log: Any) -> None:
        def listener(kind: str, _payload: Mapping[str, Any], rollout: int | None) -> None:
            if kind == "warning" and rollout == 3:
                run.control.write_text('{"id": "s", "attempt": 1, "action": "stop"}\n')

        log.listeners.append(listener)

    assert attempt(run, engines, listen=stop_after_two) == 0
    assert attempt(run, NotFinite(0, 2, 3, 4)) == 3
    last = list(read_events(run, 2))[-1]["payload"]
    assert (last["state"], last["owner"]) == ("failed", "infrastructure")
    assert "3 updates in a row were not finite; the weights are those of rollout 1" in last["reason"]
    assert "Lower optim.learning_rate" in last["reason"]
    assert weights_at(run, 4) == weights_at(run, 2)
