"""Celery talks to our broker, in JSON, over two queues that exist."""

import json

import pytest
import redis
from django.conf import settings
from kombu.exceptions import EncodeError
from kombu.serialization import registry

from webapp.celery import app


def test_a_task_lands_in_its_queue_as_json_on_our_server() -> None:
    client = redis.Redis.from_url(settings.SPADEWORK_REDIS_URL)
    client.delete("gpu")
    app.send_task("tests.nothing", args=[7], queue="gpu")
    message = json.loads(client.lpop("gpu"))
    assert message["content-type"] == "application/json"
    assert message["headers"]["task"] == "tests.nothing"
    assert client.llen("gpu") == 0


def test_an_unknown_queue_is_refused_instead_of_swallowing_tasks() -> None:
    with pytest.raises(KeyError):
        app.amqp.queues["gpuu"]


def test_objects_that_are_no_json_are_refused() -> None:
    with pytest.raises((EncodeError, TypeError)):
        app.send_task("tests.nothing", args=[object()], queue="default")
    assert app.conf.accept_content == ["json"]
    assert "application/json" in registry.type_to_name


def test_long_work_is_not_handed_out_twice_and_nothing_is_kept() -> None:
    assert app.conf.broker_transport_options["visibility_timeout"] == 604_800
    assert app.conf.worker_prefetch_multiplier == 1
    assert app.conf.task_acks_late is False
    assert app.conf.result_backend is None
    assert app.conf.broker_url == settings.CELERY_BROKER_URL
