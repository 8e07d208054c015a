"""Webhooks: where they may lead, what they are sent, retries, switching off, and who may manage them."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from spadework_client import WebhookRefused, verify_webhook
from webapp.alerts import addresses, delivering, services
from webapp.alerts.addresses import AddressRefused
from webapp.alerts.models import Alert, Delivery, Webhook
from webapp.alerts.signing import secret_of

pytestmark = pytest.mark.django_db


def alert(run: Any, kind: str = "never_won") -> Alert:
    one = Alert.objects.create(
        run=run, kind=kind, attempt=1, rollout=3, last_rollout=3, message="odd", at=timezone.now()
    )
    services.send_alert(alert=one)
    return one


def deliver(delivery: Delivery) -> Delivery:
    """The next try, as if its time had come."""
    Delivery.objects.filter(pk=delivery.pk).update(next_at=timezone.now())
    assert delivering.deliver(delivery_id=delivery.pk)
    delivery.refresh_from_db()
    return delivery


def test_an_alert_arrives_signed_and_says_what_and_where(run: Any, webhook: Any, receiver: Any) -> None:
    alert(run)
    delivery = deliver(webhook.deliveries.get())
    assert (delivery.state, delivery.status, delivery.answer) == ("delivered", 200, "thanks␀")
    ((headers, body),) = receiver.got
    told = verify_webhook(secret_of(webhook), headers, body)
    assert (told["type"], told["rollout"], told["run"]["slug"]) == ("never_won", 3, "tanks-1")
    assert told["run"]["url"] == f"http://127.0.0.1:8400/runs/{run.pk}/"
    with pytest.raises(WebhookRefused, match="signature"):
        verify_webhook(secret_of(webhook), headers, body + b" ")
    with pytest.raises(WebhookRefused, match="signature"):
        verify_webhook("spwh_other", headers, body)
    with pytest.raises(WebhookRefused, match="old"):
        verify_webhook(secret_of(webhook), headers, body, now=float(headers["X-Spadework-Timestamp"]) + 301)


def test_the_secret_is_not_in_the_database(webhook: Any) -> None:
    from django.db import connection

    secret = secret_of(webhook)
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM alerts_webhook t WHERE t::text LIKE %s", [f"%{secret[5:]}%"])
        assert cursor.fetchone() == (0,)


def test_a_webhook_gets_only_the_kinds_it_wants(run: Any, receiver: Any, person: Any) -> None:
    wanted, _ = services.create_webhook(actor=person, name="losses", url=receiver.url, kinds=["run_lost"])
    alert(run)
    assert wanted.deliveries.count() == 0
    alert(run, "run_lost")
    assert wanted.deliveries.count() == 1


def test_a_failed_try_is_repeated_later_and_later_and_given_up_in_the_end(
    run: Any, webhook: Any, receiver: Any
) -> None:
    receiver.status = 500
    alert(run)
    delivery = webhook.deliveries.get()
    waits = []
    for _ in delivering.WAITS_S:
        began = timezone.now()
        delivery = deliver(delivery)
        assert (delivery.state, delivery.status) == ("waiting", 500)
        waits.append(round((delivery.next_at - began).total_seconds(), -1))
    assert waits == list(delivering.WAITS_S)
    assert deliver(delivery).state == "failed"
    assert len(receiver.got) == len(delivering.WAITS_S) + 1
    assert len({body for _, body in receiver.got}) == 1


def test_a_try_is_made_only_when_it_is_due_and_by_one_worker(run: Any, webhook: Any, receiver: Any) -> None:
    alert(run)
    delivery = webhook.deliveries.get()
    assert delivering.due() == [delivery.pk]
    assert delivering.deliver(delivery_id=delivery.pk)
    assert not delivering.deliver(delivery_id=delivery.pk)
    Delivery.objects.filter(pk=delivery.pk).update(state="waiting", next_at=timezone.now() + timedelta(seconds=60))
    assert not delivering.deliver(delivery_id=delivery.pk)
    assert (delivering.due(), len(receiver.got)) == ([], 1)


def test_many_failures_in_a_row_switch_a_webhook_off_and_a_person_switches_it_on(
    run: Any, webhook: Any, receiver: Any, person: Any
) -> None:
    from webapp.accounts.models import AuditEntry

    receiver.status = 503
    Webhook.objects.filter(pk=webhook.pk).update(failures=delivering.MOST_FAILURES - 1)
    alert(run)
    delivery = deliver(webhook.deliveries.get())
    webhook.refresh_from_db()
    assert webhook.disabled_reason == "20 tries in a row failed"
    assert AuditEntry.objects.get(action="webhook.disabled").actor_name == "system"
    assert not delivering.deliver(delivery_id=delivery.pk)
    receiver.status = 200
    services.enable_webhook(actor=person, webhook_id=webhook.pk)
    assert deliver(delivery).state == "delivered"
    webhook.refresh_from_db()
    assert webhook.failures == 0


def test_a_success_ends_a_row_of_failures(run: Any, webhook: Any) -> None:
    Webhook.objects.filter(pk=webhook.pk).update(failures=19)
    alert(run)
    deliver(webhook.deliveries.get())
    webhook.refresh_from_db()
    assert (webhook.failures, webhook.disabled_at) == (0, None)


@pytest.mark.parametrize("status", [200, 500])
def test_a_webhook_deleted_during_a_try_ends_nothing_else(
    run: Any, webhook: Any, receiver: Any, person: Any, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    from webapp.alerts import tasks

    staying, _ = services.create_webhook(actor=person, name="staying", url=receiver.url)
    receiver.status = status
    alert(run)
    first, second = webhook.deliveries.get(), staying.deliveries.get()
    real = delivering.post

    def post(**sent: Any) -> Any:
        Webhook.objects.filter(pk=webhook.pk).delete()
        return real(**sent)

    monkeypatch.setattr(delivering, "post", post)
    assert delivering.due() == [first.pk, second.pk]
    tasks.sweep()
    second.refresh_from_db()
    assert (second.tries, second.status) == (1, status)
    assert not Delivery.objects.filter(pk=first.pk).exists()


def test_a_redirect_is_not_followed(run: Any, webhook: Any, receiver: Any) -> None:
    receiver.status = 302
    alert(run)
    assert deliver(webhook.deliveries.get()).status == 302
    assert len(receiver.got) == 1


def test_nobody_there_is_a_failed_try_with_the_reason(run: Any, webhook: Any, receiver: Any) -> None:
    receiver.server.shutdown()
    receiver.server.server_close()
    alert(run)
    delivery = deliver(webhook.deliveries.get())
    assert (delivery.state, delivery.status) == ("waiting", None)
    assert "no answer" in delivery.answer


def test_a_test_is_sent_once_and_its_outcome_is_on_the_page(webhook: Any, receiver: Any, operator: Client) -> None:
    receiver.status = 418
    operator.post(f"/alerts/webhooks/{webhook.pk}/test/")
    delivery = deliver(webhook.deliveries.get())
    assert (delivery.state, json.loads(receiver.got[0][1])["type"]) == ("failed", "test")
    page = operator.get(f"/alerts/webhooks/{webhook.pk}/").content.decode()
    assert "418" in page
    assert "given up" in page


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://169.254.169.254/latest/meta-data/", "link-local"), ("http://[fe80::1]/", "link-local"),
        ("http://[fd00:ec2::254]/", "metadata"), ("http://100.100.100.200/", "metadata"),
        ("http://[::ffff:169.254.169.254]/", "link-local"),
        ("http://0.0.0.0/", "link-local"), ("http://224.0.0.1/", "multicast"), ("http://2852039166/", "link-local"),
        ("http://[64:ff9b::a9fe:a9fe]/", "link-local"), ("http://[64:ff9b:1::a9fe:a9fe]/", "link-local"),
        ("http://[::a9fe:a9fe]/", "link-local"), ("http://[2002:a9fe:a9fe::]/", "link-local"),
        ("http://[2001:0:a9fe:a9fe::]/", "link-local"), ("http://[2001:0:808:808::5601:5601]/", "link-local"),
        ("http://[64:ff9b::e000:1]/", "multicast"), ("http://[::]/", "link-local"),
        ("http://no-such-host.invalid/", "no address"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("private", [False, True])
def test_addresses_that_no_setting_allows(url: str, words: str, private: bool, settings: Any) -> None:
    settings.SPADEWORK_WEBHOOK_PRIVATE = private
    with pytest.raises(AddressRefused, match=words):
        addresses.resolve(addresses.parse(url))


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1/", "http://localhost:9/", "http://10.1.2.3/", "http://192.168.0.4/", "http://[::1]/", "http://[fd12::1]/",
            "http://[::ffff:127.0.0.1]/", "http://127.1/", "http://[64:ff9b::7f00:1]:6379/", "http://[64:ff9b::a00:1]/",
            "http://[64:ff9b:1::a00:1]/", "http://[::7f00:1]/", "http://[2002:7f00:1::]/", "http://[2001:0:808:808::f5ff:fffe]/",
            "http://[fec0::1]/"]
)  # fmt: skip
def test_private_addresses_need_the_setting(url: str, settings: Any) -> None:
    settings.SPADEWORK_WEBHOOK_PRIVATE = False
    with pytest.raises(AddressRefused, match="SPADEWORK_WEBHOOK_PRIVATE=on"):
        addresses.resolve(addresses.parse(url))
    settings.SPADEWORK_WEBHOOK_PRIVATE = True
    assert addresses.resolve(addresses.parse(url))


@pytest.mark.parametrize(
    "url", ["http://8.8.8.8/", "http://[2606:4700::1111]/", "http://[64:ff9b::808:808]/", "http://[2002:808:808::1]/"]
)
def test_public_addresses_need_no_setting(url: str, settings: Any) -> None:
    settings.SPADEWORK_WEBHOOK_PRIVATE = False
    assert addresses.resolve(addresses.parse(url)) in url


@pytest.mark.parametrize(
    "url", ["ftp://example.org/", "example.org", "http://", "https://user:pass@example.org/", "http://a b/", "http://a:99999/",
            "http://example.org/\r\nX: y", "file:///etc/passwd"]
)  # fmt: skip
def test_what_is_no_address_of_a_receiver_is_refused(url: str) -> None:
    with pytest.raises(AddressRefused):
        addresses.parse(url)


def test_an_address_that_turns_private_later_is_refused_when_it_is_used(
    run: Any, webhook: Any, receiver: Any, settings: Any
) -> None:
    settings.SPADEWORK_WEBHOOK_PRIVATE = False
    alert(run)
    delivery = deliver(webhook.deliveries.get())
    assert "not on the public internet" in delivery.answer
    assert receiver.got == []


@pytest.mark.parametrize(
    ("role", "read", "write"),
    [("anonymous", 302, 302), ("", 403, 403), ("viewer", 403, 403), ("reviewer", 403, 403), ("operator", 200, 302), ("admin", 200, 302)],
)  # fmt: skip
def test_operators_manage_webhooks(
    role: str, read: int, write: int, webhook: Any, as_role: Callable[[str], Client]
) -> None:
    client = as_role(role)
    pages = ("/alerts/webhooks/", f"/alerts/webhooks/{webhook.pk}/")
    assert [client.get(page).status_code for page in pages] == [read, read]
    for act in ("test", "disable", "enable", "delete"):
        assert client.post(f"/alerts/webhooks/{webhook.pk}/{act}/").status_code == write
    assert Webhook.objects.exists() is (write != 302 or role == "anonymous")


def test_a_webhook_made_on_the_page_shows_its_secret_once(receiver: Any, operator: Client) -> None:
    answer = operator.post("/alerts/webhooks/", {"name": "chat", "url": receiver.url, "kinds": ["run_lost"]})
    webhook = Webhook.objects.get()
    secret = secret_of(webhook)
    assert secret in answer.content.decode()
    assert secret not in operator.get(f"/alerts/webhooks/{webhook.pk}/").content.decode()
    refused = operator.post("/alerts/webhooks/", {"name": "x", "url": "http://169.254.169.254/"})
    assert refused.status_code == 422
    assert "link-local" in refused.content.decode()
