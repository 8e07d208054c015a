"""Which pytest invocations start the throw-away servers."""

from pathlib import Path

import pytest

from tests.conftest import needs_django

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["tests"], True),
        (["tests/trainer"], False),
        (["tests/trainer/test_loop.py::test_one", "tests/sandbox"], False),
        (["tests/trainer", "tests/runs/test_views.py"], True),
        (["tests/trainers-other"], True),
    ],
)
def test_servers_start_only_for_paths_that_can_hold_django_tests(arguments: list[str], expected: bool) -> None:
    assert needs_django(arguments, ROOT) is expected
