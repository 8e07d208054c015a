"""DATABASE_URL and REDIS_URL in every form people write them, and what follows from SPADEWORK_PUBLIC_URL."""

import pytest

from webapp.settings.env import BadSetting
from webapp.settings.origins import Origins, read_origins
from webapp.settings.services import database_settings, redis_address


def database(text: str, pool_size: int = 0) -> dict:
    return database_settings("DATABASE_URL", text, pool_size=pool_size)


def test_a_postgres_url_over_tcp_is_split_into_djangos_parts() -> None:
    entry = database("postgresql://ana:p%40ss%2Fword@db.example.org:6432/spade")
    assert (entry["NAME"], entry["USER"], entry["PASSWORD"], entry["HOST"], entry["PORT"]) == (
        "spade",
        "ana",
        "p@ss/word",
        "db.example.org",
        "6432",
    )


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://u:pw@/name?host=/run/pg",
        "postgres://u:pw@%2Frun%2Fpg/name",
        "host=/run/pg dbname=name user=u password=pw",
    ],
)
def test_a_unix_socket_is_understood_in_all_three_of_libpqs_forms(text: str) -> None:
    entry = database(text)
    assert (entry["HOST"], entry["NAME"], entry["USER"], entry["PASSWORD"]) == ("/run/pg", "name", "u", "pw")


def test_other_libpq_parameters_become_options() -> None:
    entry = database("postgresql://u@h/name?sslmode=require&connect_timeout=3")
    assert entry["OPTIONS"] == {"sslmode": "require", "connect_timeout": "3", "application_name": "spadework"}


def test_a_pool_replaces_lasting_connections() -> None:
    entry = database("postgresql://u@h/name", pool_size=8)
    assert entry["OPTIONS"]["pool"] == {"min_size": 1, "max_size": 8, "timeout": 10}
    assert entry["CONN_MAX_AGE"] == 0
    assert "pool" not in database("postgresql://u@h/name")["OPTIONS"]


@pytest.mark.parametrize(
    "text", ["mysql://u:sesame@h/x", "nonsense sesame", "postgresql://u:sesame@h:port/x", "postgresql://u:sesame@h"]
)
def test_a_bad_database_url_is_named_and_its_password_not_shown(text: str) -> None:
    with pytest.raises(BadSetting, match=r"DATABASE_URL .*postgresql://user:password@host") as caught:
        database(text)
    assert "sesame" not in str(caught.value)


def test_a_valkey_socket_gets_the_spelling_of_each_library() -> None:
    address = redis_address("REDIS_URL", "unix://:p%2Fw@/run/vk.sock?db=3")
    assert address.client_url == "unix://:p%2Fw@/run/vk.sock?db=3"
    assert address.celery_url == "redis+socket://:p%2Fw@/run/vk.sock?virtual_host=3"


def test_a_valkey_host_gets_the_same_url_for_both() -> None:
    address = redis_address("REDIS_URL", "redis://ana:pw@10.0.0.5:6380/2")
    assert address.client_url == address.celery_url == "redis://ana:pw@10.0.0.5:6380/2"
    assert redis_address("REDIS_URL", "redis://h").client_url == "redis://h:6379/0"
    assert redis_address("REDIS_URL", "rediss://[::1]:7000/1").client_url == "rediss://[::1]:7000/1"
    assert address.with_database(5).client_url == "redis://ana:pw@10.0.0.5:6380/5"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("http://:sesame@h", "scheme 'http'"),
        ("unix://:sesame@", "no absolute socket path"),
        ("redis://:sesame@/0", "names no host"),
        ("redis://:sesame@h/zero", "'zero', which is not a number"),
        ("redis://:sesame@h/0?ssl=1", "unknown option 'ssl'"),
        ("redis://:sesame@h:port/0", "not a URL"),
    ],
)
def test_a_bad_redis_url_says_why_and_hides_the_password(text: str, why: str) -> None:
    with pytest.raises(BadSetting, match=why) as caught:
        redis_address("REDIS_URL", text)
    assert "sesame" not in str(caught.value)
    assert "REDIS_URL" in str(caught.value)


def origins(text: str, *extra: str) -> Origins:
    return read_origins("SPADEWORK_PUBLIC_URL", text, extra_name="SPADEWORK_EXTRA_ORIGINS", extra=extra)


def test_a_loopback_address_is_accepted_under_its_three_names_at_one_port() -> None:
    found = origins("http://127.0.0.1:8431")
    assert found.public == "http://127.0.0.1:8431"
    assert found.hosts == ["127.0.0.1", "localhost", "[::1]"]
    assert found.http_origins == ["http://127.0.0.1:8431", "http://localhost:8431", "http://[::1]:8431"]
    assert found.socket_sources == ["ws://127.0.0.1:8431", "ws://localhost:8431"]
    assert found.https is False


def test_a_public_name_is_accepted_alone_and_default_ports_are_left_out() -> None:
    found = origins("https://Spade.Example.org:443/")
    assert found.public == "https://spade.example.org"
    assert (found.hosts, found.http_origins, found.socket_sources) == (
        ["spade.example.org"],
        ["https://spade.example.org"],
        ["wss://spade.example.org"],
    )
    assert found.https is True


def test_extra_origins_are_added_and_checked_under_their_own_name() -> None:
    found = origins("https://a.example.org", "http://10.0.0.5:8000")
    assert found.hosts == ["a.example.org", "10.0.0.5"]
    assert found.http_origins == ["https://a.example.org", "http://10.0.0.5:8000"]
    with pytest.raises(BadSetting, match="SPADEWORK_EXTRA_ORIGINS"):
        origins("https://a.example.org", "10.0.0.5")


@pytest.mark.parametrize(
    "text", ["https://a/path", "https://u:p@a", "https://*.example.org", "a.example.org", "https://", "https://a?x=1"]
)
def test_an_address_that_is_no_plain_origin_is_refused(text: str) -> None:
    with pytest.raises(BadSetting, match="SPADEWORK_PUBLIC_URL"):
        origins(text)
