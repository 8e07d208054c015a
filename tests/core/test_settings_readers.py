"""The typed environment readers: what they accept, and that a bad value names its variable and the right shape."""

import os
from pathlib import Path

import pytest

from webapp.settings.env import (
    BadSetting,
    envbool,
    envchoice,
    envint,
    envlist,
    envpath,
    envsecret,
    envstr,
    envurl,
)
from webapp.settings.guards import refuse_celery_environment

GOOD_SECRET = "q8Zt4Lw0Xv7Rk2Bn5Jc9Hs3Md6Fy1Gp-UeT0aVb3Wd5Yf7Zh9Kj2"


@pytest.mark.parametrize(
    ("text", "value"),
    [("yes", True), ("TRUE", True), ("1", True), ("on", True), ("No", False), ("0", False), ("off", False)],
)
def test_yes_and_no_are_read_in_any_spelling(monkeypatch: pytest.MonkeyPatch, text: str, value: bool) -> None:
    monkeypatch.setenv("SPADEWORK_X", text)
    assert envbool("SPADEWORK_X", default=not value) is value


def test_a_word_that_is_neither_yes_nor_no_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPADEWORK_X", "maybe")
    with pytest.raises(BadSetting, match=r"SPADEWORK_X is 'maybe'.*yes or no") as caught:
        envbool("SPADEWORK_X", default=True)
    assert caught.value.name == "SPADEWORK_X"


def test_a_blank_variable_counts_as_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPADEWORK_X", "   ")
    assert envbool("SPADEWORK_X", default=True) is True
    assert envint("SPADEWORK_X", default=7, minimum=1, maximum=9) == 7
    assert envlist("SPADEWORK_X") == []
    with pytest.raises(BadSetting, match="SPADEWORK_X is not set; set it to a word"):
        envstr("SPADEWORK_X", expected="a word")


@pytest.mark.parametrize("text", ["eight", "8.5", "0x10", "9" * 40, "٣"])
def test_text_that_is_no_whole_number_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("SPADEWORK_X", text)
    with pytest.raises(BadSetting, match=r"SPADEWORK_X is .*from 1 to 64"):
        envint("SPADEWORK_X", default=2, minimum=1, maximum=64)


def test_a_number_out_of_range_is_refused_and_the_bounds_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    for text, value in (("1", 1), ("64", 64), ("+8", 8)):
        monkeypatch.setenv("SPADEWORK_X", text)
        assert envint("SPADEWORK_X", default=2, minimum=1, maximum=64) == value
    monkeypatch.setenv("SPADEWORK_X", "65")
    with pytest.raises(BadSetting, match="65, which is out of range"):
        envint("SPADEWORK_X", default=2, minimum=1, maximum=64)


def test_a_choice_is_found_without_case_and_others_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPADEWORK_X", "debug")
    assert envchoice("SPADEWORK_X", default="INFO", choices=["INFO", "DEBUG"]) == "DEBUG"
    monkeypatch.setenv("SPADEWORK_X", "loud")
    with pytest.raises(BadSetting, match="one of INFO, DEBUG"):
        envchoice("SPADEWORK_X", default="INFO", choices=["INFO", "DEBUG"])


def test_lists_are_split_at_commas_and_trimmed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPADEWORK_X", " a, ,b ,c,")
    assert envlist("SPADEWORK_X") == ["a", "b", "c"]


def test_a_relative_path_is_refused_and_a_home_path_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPADEWORK_X", "data/spadework")
    with pytest.raises(BadSetting, match="relative path"):
        envpath("SPADEWORK_X", default=Path("/x"))
    monkeypatch.setenv("SPADEWORK_X", "~/spadework")
    assert envpath("SPADEWORK_X", default=Path("/x")) == Path.home() / "spadework"


@pytest.mark.parametrize("text", ["ftp://host/", "host:80", "http://host:99999", "http://[::1"])
def test_a_url_of_a_wrong_scheme_or_shape_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("SPADEWORK_X", text)
    with pytest.raises(BadSetting, match=r"SPADEWORK_X .*set it to a URL like http://host"):
        envurl("SPADEWORK_X", schemes=("http", "https"), example="http://host")


def test_a_secret_comes_from_its_file_before_the_plain_variable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "key"
    path.write_text(GOOD_SECRET + "\n")
    path.chmod(0o600)
    monkeypatch.setenv("SPADEWORK_S", "something else that is long enough, surely 123")
    monkeypatch.setenv("SPADEWORK_S_FILE", str(path))
    assert envsecret("SPADEWORK_S", file_name="SPADEWORK_S_FILE") == GOOD_SECRET


def test_a_secret_file_that_everybody_can_read_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text(GOOD_SECRET)
    path.chmod(0o644)
    monkeypatch.setenv("SPADEWORK_S_FILE", str(path))
    with pytest.raises(BadSetting, match="everybody on this machine can read"):
        envsecret("SPADEWORK_S", file_name="SPADEWORK_S_FILE")


def test_a_missing_secret_file_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPADEWORK_S_FILE", str(tmp_path / "none"))
    with pytest.raises(BadSetting, match=r"SPADEWORK_S_FILE points to .*none, which cannot be read \(No such file"):
        envsecret("SPADEWORK_S", file_name="SPADEWORK_S_FILE")


@pytest.mark.parametrize(
    ("secret", "why"),
    [
        ("short", "5 characters"),
        ("ab" * 30, "only 2 different"),
        ("change-me-change-me-0123456789-abcdefgh-0123456789-xyz", "placeholder"),
        ("django-insecure-0a1b2c3d4e5f6g7h8i9j0k1l2m3n4o5p6q7r8s9t", "placeholder"),
    ],
)
def test_weak_secrets_are_refused_without_being_shown(monkeypatch: pytest.MonkeyPatch, secret: str, why: str) -> None:
    monkeypatch.setenv("SPADEWORK_S", secret)
    monkeypatch.delenv("SPADEWORK_S_FILE", raising=False)
    with pytest.raises(BadSetting, match=why) as caught:
        envsecret("SPADEWORK_S", file_name="SPADEWORK_S_FILE")
    assert secret not in str(caught.value)


def test_without_any_secret_both_variables_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPADEWORK_S", raising=False)
    monkeypatch.delenv("SPADEWORK_S_FILE", raising=False)
    with pytest.raises(BadSetting, match=r"SPADEWORK_S is not set.*SPADEWORK_S_FILE"):
        envsecret("SPADEWORK_S", file_name="SPADEWORK_S_FILE")


@pytest.mark.parametrize(
    "name", ["CELERY_BROKER_URL", "CELERY_BROKER_READ_URL", "CELERY_BROKER_WRITE_URL", "CELERY_RESULT_BACKEND"]
)
def test_a_variable_that_celery_would_obey_over_ours_is_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "redis://elsewhere:6379/0")
    with pytest.raises(BadSetting, match=f"{name} is set, and Celery would obey it"):
        refuse_celery_environment()


def test_nothing_is_refused_when_celery_variables_are_absent() -> None:
    assert not [name for name in os.environ if name.startswith("CELERY_BROKER")]
    refuse_celery_environment()
