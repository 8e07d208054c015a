"""A build that was interrupted goes on only with what it was begun with; the whole of a build takes hours and is no test."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from trainer.__main__ import main
from trainer.errors import UserError
from trainer.starter.__main__ import MODEL_DIRECTORY
from trainer.starter.build import ORIGIN, Training, build, origin, refuse_other_work
from trainer.starter.recipe import Recipe, changed
from trainer.starter.tokens import load_tokenizer

OTHER = replace(Recipe(), weight_decay=0.1)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """What an interrupted build of another recipe left."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / ORIGIN).write_text(json.dumps(origin(OTHER)))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "state.pt").write_bytes(b"hours of work")
    return folder


def test_an_unfinished_build_of_another_recipe_is_kept_and_says_what_differs(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["starter", "build", "--work", str(work), "--out", str(work.parent / "out")]
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert f"{work} holds an unfinished build that is not this recipe's: weight_decay 0.1 there, 0.05 now." in said
    assert "Give another --work, or --anew to throw it away and begin again." in said
    assert (work / "state.pt").read_bytes() == b"hours of work" and not (work.parent / "out").exists()


def test_the_same_recipe_with_other_training_texts_is_another_build(work: Path) -> None:
    wanted = origin(OTHER)
    refuse_other_work(work, wanted)
    with pytest.raises(UserError, match="the code writes other training texts than it did then"):
        refuse_other_work(work, {**wanted, "texts": "of another day"})


def test_a_build_that_does_not_say_whose_it_is_is_not_taken_for_this_one(work: Path) -> None:
    (work / ORIGIN).unlink()
    with pytest.raises(UserError, match=r"origin.json, which says whose it is, is not readable"):
        build(OTHER, work=work, out=work, processes=1)


def test_a_new_folder_is_nobody_elses(tmp_path: Path) -> None:
    refuse_other_work(tmp_path / "new", origin(Recipe()))


def test_training_goes_on_with_the_numbers_it_stopped_with(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    recipe = replace(Recipe(), layers=1, hidden=32, mlp=64, heads=2, kv_heads=1, head_dim=16, designs_per_chunk=2)
    tokenizer = load_tokenizer(MODEL_DIRECTORY)
    whole, first, second = (Training(recipe, tokenizer) for _ in range(3))
    for chunk in range(2):
        whole.run_chunk(chunk)
    first.run_chunk(0)
    first.chunk = 1
    first.save(tmp_path / "state.pt")
    assert second.load(tmp_path / "state.pt")
    assert (second.chunk, second.loss) == (1, first.loss)
    second.run_chunk(second.chunk)
    assert (second.step, second.tokens, second.loss) == (whole.step, whole.tokens, whole.loss)
    for a, b in zip(second.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_numbers_of_the_recipe_can_be_changed_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert changed(Recipe(), {"hidden": 192, "mlp": 768, "weight_decay": 0}) == replace(
        Recipe(), hidden=192, mlp=768, weight_decay=0
    )
    for values, said in (
        ({"width": 192}, "the recipe has no number 'width'; it has seed, batch_tokens"),
        ({"stages": 1}, "the recipe has no number 'stages'"),
        ({"hidden": 1.5}, "hidden=1.5 is not a whole number"),
        ({"weight_decay": True}, "weight_decay=True is not a number"),
    ):
        with pytest.raises(UserError, match=re.escape(said)):
            changed(Recipe(), values)
    assert main(["starter", "build", "--set", "hidden=192"]) == 2
    assert "--set makes another model than the built-in one: say with --out where it goes" in capsys.readouterr().err
