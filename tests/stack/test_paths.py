"""Where data and sockets go."""

import os
from pathlib import Path

import pytest

from tests.stack.processes import root_only
from webapp.stack.errors import StackError
from webapp.stack.paths import Home, reachable_by_others, socket_directory


def test_the_default_is_below_the_users_data_home() -> None:
    assert Home.from_environment({"XDG_DATA_HOME": "/data"}).root == Path("/data/spadework")


def test_a_relative_data_home_is_ignored_as_its_specification_says() -> None:
    assert Home.from_environment({"XDG_DATA_HOME": "data"}).root == Path.home() / ".local/share/spadework"


def test_the_setting_wins_and_a_relative_one_is_made_absolute() -> None:
    assert Home.from_environment({"SPADEWORK_HOME": "here", "XDG_DATA_HOME": "/data"}).root == Path.cwd() / "here"


def test_nobody_else_can_look_into_the_directory(tmp_path: Path) -> None:
    home = Home(tmp_path / "deep" / "home")
    old = os.umask(0)
    try:
        home.create()
    finally:
        os.umask(old)
    for directory in (home.root, home.secrets, home.postgres, home.logs):
        assert directory.stat().st_mode & 0o777 == 0o700


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    with pytest.raises(StackError, match=r"cannot create .*/home: File exists; set SPADEWORK_HOME"):
        Home(tmp_path / "home").create()


@root_only
def test_a_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.create()
    os.chown(home.root, 65534, 65534)
    with pytest.raises(StackError, match="belongs to user id 65534, this is user id 0"):
        home.create()


def test_sockets_lie_in_the_data_directory_when_its_path_is_short(tmp_path: Path) -> None:
    home = Home(Path("/tmp") / f"sw-test-{os.getpid()}")
    home.create()
    try:
        assert socket_directory(home) == home.root / "sockets"
    finally:
        for directory in sorted(home.root.rglob("*"), reverse=True):
            directory.rmdir()
        home.root.rmdir()


def test_a_long_data_path_gets_short_sockets_and_a_restart_finds_them_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    home = Home(tmp_path / ("long" * 30))
    directory = socket_directory(home)
    try:
        assert directory.parent == Path("/tmp")
        assert directory.stat().st_mode & 0o777 == 0o700
        assert socket_directory(home) == directory
        assert socket_directory(Home(tmp_path / ("else" * 30))) != directory
    finally:
        directory.rmdir()


@root_only
def test_a_socket_directory_that_somebody_else_made_first_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    temporary = Path("/tmp") / f"sw-test-{os.getpid()}"
    temporary.mkdir()
    home = Home(tmp_path / ("long" * 30))
    squatted = socket_directory(home, temporary=temporary)
    os.chown(squatted, 65534, 65534)
    try:
        with pytest.raises(StackError, match="is not this user's: remove it"):
            socket_directory(home, temporary=temporary)
    finally:
        squatted.rmdir()
        temporary.rmdir()


def test_reachable_means_every_directory_above_can_be_entered(tmp_path: Path) -> None:
    place = tmp_path / "a" / "b" / "file"
    place.parent.mkdir(parents=True)
    tmp_path.chmod(0o755)
    (tmp_path / "a").chmod(0o700)
    assert not reachable_by_others(place)
    assert reachable_by_others(Path("/usr/bin/env"))
