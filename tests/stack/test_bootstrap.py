"""The script that makes the virtual environment: what it recognises, what it says, what it leaves alone."""

import ast
import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools import bootstrap
from webapp.stack.paths import REPOSITORY

SCRIPT = REPOSITORY / "tools" / "bootstrap.py"


def test_even_python_3_6_can_parse_it() -> None:
    ast.parse(SCRIPT.read_text(), feature_version=(3, 6))


@pytest.mark.parametrize("version", [(3, 6, 15), (3, 10, 13), (2, 7, 18)])
def test_an_old_python_is_one_clear_line(version: tuple[int, int, int]) -> None:
    with pytest.raises(bootstrap.Stop) as raised:
        bootstrap.check_version(version)
    text = str(raised.value)
    assert text.startswith(f"this is Python {version[0]}.{version[1]}, Spadework needs 3.11 or newer: install one")
    assert "make PYTHON=python3.11" in text
    assert "\n" not in text


def test_an_old_python_first_looks_for_a_newer_one() -> None:
    asked = []
    with pytest.raises(bootstrap.Stop):
        bootstrap.check_version((3, 9, 2), lambda: asked.append("yes"))
    assert asked == ["yes"]


def test_present_pythons_pass_and_an_untested_one_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    for minor in (11, 12, 13):
        bootstrap.check_version((3, minor, 0))
    assert capsys.readouterr().out == ""
    bootstrap.check_version((3, 14, 0))
    assert "Python 3.14 is newer than what Spadework was tested with (3.13)" in capsys.readouterr().out


def make_fake_environment(directory: Path, state: object) -> None:
    (directory / "bin").mkdir(parents=True)
    (directory / "bin" / "python").symlink_to(sys.executable)
    (directory / "pyvenv.cfg").write_text("home = /usr/bin\n")
    if state is not None:
        (directory / bootstrap.MARKER).write_text(state if isinstance(state, str) else json.dumps(state))


@pytest.mark.parametrize(
    "state", [None, "", '{"fingerprint": "abc', "[]"], ids=["no marker", "empty", "torn", "not ours"]
)
def test_an_environment_without_a_whole_marker_is_half_made(tmp_path: Path, state: str | None) -> None:
    make_fake_environment(tmp_path / "venv", state)
    assert bootstrap.read_marker(tmp_path / "venv") is None


def test_an_environment_whose_python_is_gone_is_half_made(tmp_path: Path) -> None:
    make_fake_environment(tmp_path / "venv", {"fingerprint": "abc"})
    (tmp_path / "venv" / "bin" / "python").unlink()
    (tmp_path / "venv" / "bin" / "python").symlink_to("/no/such/python")
    assert bootstrap.read_marker(tmp_path / "venv") is None


class Recorder:
    """Stands in for the steps that download, and records them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[str] = []
        monkeypatch.setattr(bootstrap, "make_environment", self.make)
        monkeypatch.setattr(bootstrap, "run_pip", self.pip)

    def make(self, environment: Path) -> None:
        self.calls.append("make")
        subprocess.run(["/bin/rm", "-rf", str(environment)], check=True)
        make_fake_environment(environment, None)

    def pip(self, python: Path, arguments: list[str], what: str) -> None:
        self.calls.append(what)


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    return Recorder(monkeypatch)


def test_a_finished_environment_is_left_alone(tmp_path: Path, recorder: Recorder) -> None:
    bootstrap.ensure_environment(tmp_path / "venv", with_tests=False)
    assert recorder.calls == ["make", "pip", "the packages"]
    recorder.calls.clear()
    bootstrap.ensure_environment(tmp_path / "venv", with_tests=False)
    assert recorder.calls == []


def test_asking_for_the_tests_adds_to_it_and_later_starts_keep_them(tmp_path: Path, recorder: Recorder) -> None:
    bootstrap.ensure_environment(tmp_path / "venv", with_tests=False)
    recorder.calls.clear()
    bootstrap.ensure_environment(tmp_path / "venv", with_tests=True)
    assert recorder.calls == ["pip", "the packages"]
    recorder.calls.clear()
    bootstrap.ensure_environment(tmp_path / "venv", with_tests=False)
    bootstrap.ensure_environment(tmp_path / "venv", with_tests=True)
    assert recorder.calls == []


def test_changed_requirements_bring_it_up_to_date_in_place(
    tmp_path: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    bootstrap.ensure_environment(tmp_path / "venv", with_tests=True)
    recorder.calls.clear()
    monkeypatch.setenv("SPADEWORK_TORCH_INDEX", "file:///somewhere")
    bootstrap.ensure_environment(tmp_path / "venv", with_tests=False)
    assert recorder.calls == ["pip", "the packages"]
    assert json.loads((tmp_path / "venv" / bootstrap.MARKER).read_text())["test"] is True


def test_an_interrupted_installation_is_made_anew(
    tmp_path: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(python: Path, arguments: list[str], what: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as context:
        context.setattr(bootstrap, "run_pip", interrupted)
        with pytest.raises(KeyboardInterrupt):
            bootstrap.ensure_environment(tmp_path / "venv", with_tests=False)
    recorder.calls.clear()
    bootstrap.ensure_environment(tmp_path / "venv", with_tests=False)
    assert recorder.calls == ["make", "pip", "the packages"]


def test_an_environment_of_another_python_is_made_anew(tmp_path: Path, recorder: Recorder) -> None:
    make_fake_environment(tmp_path / "venv", {"fingerprint": "old", "python": [3, 9], "test": True})
    bootstrap.ensure_environment(tmp_path / "venv", with_tests=False)
    assert recorder.calls[0] == "make"


def test_a_directory_that_is_no_environment_is_never_removed(tmp_path: Path, recorder: Recorder) -> None:
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv" / "thesis.txt").write_text("mine")
    with pytest.raises(bootstrap.Stop, match="exists and is no virtual environment: remove it, or set SPADEWORK_VENV"):
        bootstrap.ensure_environment(tmp_path / "venv", with_tests=False)
    assert (tmp_path / "venv" / "thesis.txt").read_text() == "mine"
    assert recorder.calls == []


def test_too_little_room_is_said_before_the_download(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recorder: Recorder
) -> None:
    monkeypatch.setattr(bootstrap, "NEEDED_BYTES", 10**18)
    with pytest.raises(bootstrap.Stop, match=r"only [\d.]+ GB free on the disk of .*make room, or set SPADEWORK_VENV"):
        bootstrap.ensure_environment(tmp_path / "venv", with_tests=False)
    assert recorder.calls == []


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (
            [
                "WARNING: Retrying … Failed to establish a new connection: [Errno -3]",
                "ERROR: No matching distribution found for x",
            ],
            "no network: ",
        ),
        (
            ["ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device"],
            "the disk is full: ",
        ),
        (
            ["ERROR: No matching distribution found for torch==2.13.0"],
            "the packages cannot be installed: ERROR: No matching",
        ),
        (["ERROR: something new"], "the packages cannot be installed: ERROR: something new"),
        ([], "the packages cannot be installed: no output"),
    ],
)
def test_why_pip_failed_is_one_line(lines: list[str], expected: str) -> None:
    text = bootstrap.explain("the packages", lines)
    assert text.startswith(expected)
    assert "\n" not in text


class EmptyIndex(http.server.BaseHTTPRequestHandler):
    """A package index that has no package."""

    def do_GET(self) -> None:
        self.send_response(404)
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        """Quiet."""


@pytest.fixture
def index() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), EmptyIndex) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/simple"
        server.shutdown()
        thread.join()


@pytest.fixture
def pip_finds_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setattr(bootstrap, "FIRST_PAUSE_S", 0)


@pytest.mark.usefixtures("pip_finds_nothing_else")
def test_no_network_is_one_clear_line_after_three_tries(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    with pytest.raises(bootstrap.Stop, match=r"^no network: the packages must be downloaded the first time"):
        bootstrap.run_pip(Path(sys.executable), ["download", "--no-deps", "spadework-no-such-package"], "the packages")
    assert capsys.readouterr().out.count("trying again") == 2


@pytest.mark.usefixtures("pip_finds_nothing_else")
def test_a_package_that_does_not_exist_is_not_tried_again(
    index: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", index)
    with pytest.raises(
        bootstrap.Stop, match=r"^the packages cannot be installed: ERROR: No matching distribution found"
    ):
        bootstrap.run_pip(Path(sys.executable), ["download", "--no-deps", "spadework-no-such-package"], "the packages")
    assert "trying again" not in capsys.readouterr().out


def test_a_browser_setting_that_is_no_program_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPADEWORK_CHROMIUM", "/no/such/chromium")
    with pytest.raises(bootstrap.Stop, match="SPADEWORK_CHROMIUM is /no/such/chromium, which is no program"):
        bootstrap.find_browser()


def test_without_a_browser_and_without_rights_the_one_command_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPADEWORK_CHROMIUM", raising=False)
    monkeypatch.setattr(bootstrap, "BROWSERS", ())
    monkeypatch.setattr(bootstrap, "root_prefix", lambda: None)
    with pytest.raises(
        bootstrap.Stop,
        match=r"run `sudo apt-get install --yes --no-install-recommends chromium`.*or run `make test BROWSER=no`",
    ):
        bootstrap.ensure_browser()


def test_the_script_names_no_package_host() -> None:
    """Which index is used is the machine's configuration; the one address we point to is on PyTorch's own page."""
    for file in (SCRIPT, REPOSITORY / "Makefile", *(REPOSITORY / "requirements").glob("*.txt")):
        assert "://" not in file.read_text()
