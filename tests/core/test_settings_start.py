"""Starting a real process with good and bad environments: one clear line, and a clean deployment check over HTTPS."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GOOD = {
    "DATABASE_URL": "postgresql://u:pw@127.0.0.1:1/none",
    "REDIS_URL": "redis://127.0.0.1:1/0",
    "SPADEWORK_SECRET_KEY": "q8Zt4Lw0Xv7Rk2Bn5Jc9Hs3Md6Fy1Gp-Ueq8Zt4Lw0Xv7Rk2Bn5Jc9Hs3",
    "SPADEWORK_PUBLIC_URL": "https://spade.example.org",
}


def manage(*arguments: str, **environment: str | None) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPADEWORK_", "DJANGO_"))}
    wanted = {name: value for name, value in {**GOOD, **environment}.items() if value is not None}
    dropped = {name: value for name, value in kept.items() if name not in GOOD} | wanted
    return subprocess.run(
        [sys.executable, "manage.py", *arguments], cwd=ROOT, env=dropped, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize(
    ("environment", "line"),
    [
        ({"SPADEWORK_SECRET_KEY": None}, "spadework: SPADEWORK_SECRET_KEY is not set"),
        ({"DATABASE_URL": None}, "spadework: DATABASE_URL is not set"),
        ({"SPADEWORK_DEBUG": "perhaps"}, "spadework: SPADEWORK_DEBUG is 'perhaps'"),
        (
            {"SPADEWORK_HTTPS": "no"},
            "spadework: SPADEWORK_HTTPS is no but SPADEWORK_PUBLIC_URL is https://spade.example.org",
        ),
        ({"CELERY_BROKER_URL": "redis://elsewhere"}, "spadework: CELERY_BROKER_URL is set"),
    ],
)
def test_a_bad_environment_stops_the_start_with_one_line(environment: dict[str, str | None], line: str) -> None:
    result = manage("check", **environment)
    assert result.returncode != 0
    assert result.stderr.startswith(line), result.stderr
    assert result.stderr.count("\n") == 1


def test_the_deployment_check_is_clean_over_https() -> None:
    result = manage("check", "--deploy", "--fail-level", "WARNING")
    assert result.returncode == 0, result.stderr
    assert "no issues" in result.stdout


def test_a_database_that_does_not_answer_is_one_line_with_what_to_do() -> None:
    result = manage("demo_link")
    assert result.returncode != 0
    assert result.stderr.startswith("spadework: Postgres cannot be used (connection failed")
    assert "make up" in result.stderr


def test_the_models_and_the_migrations_agree() -> None:
    result = subprocess.run(
        [sys.executable, "manage.py", "makemigrations", "--check", "--dry-run", "accounts"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 0, result.stdout + result.stderr
