"""Which origin may open a socket, and that a quiet one stays open."""

import asyncio
import json
import uuid

import pytest
from asgiref.testing import ApplicationCommunicator
from channels.generic.websocket import AsyncJsonWebsocketConsumer
from channels.layers import get_channel_layer
from channels_redis.core import RedisChannelLayer
from django.conf import settings

from webapp.core.origin import ExactOrigin


class Listener(AsyncJsonWebsocketConsumer):
    """Joins the group named in its path and forwards what comes."""

    async def connect(self) -> None:
        self.group = self.scope["path"].strip("/")
        await self.channel_layer.group_add(self.group, self.channel_name)
        await self.accept()

    async def wake(self, event: dict) -> None:
        await self.send_json({"seq": event["seq"]})


class Socket:
    """A WebSocket client of an ASGI application in this process (Channels' own one wants daphne, which we do not use)."""

    def __init__(self, application: object, path: str, headers: list[tuple[bytes, bytes]] | None = None) -> None:
        scope = {"type": "websocket", "path": path, "headers": headers or [], "subprotocols": []}
        self.inner = ApplicationCommunicator(application, scope)

    async def connect(self) -> bool:
        await self.inner.send_input({"type": "websocket.connect"})
        return (await self.inner.receive_output(5))["type"] == "websocket.accept"

    async def receive_json(self) -> object:
        return json.loads((await self.inner.receive_output(5))["text"])

    async def close(self) -> None:
        await self.inner.send_input({"type": "websocket.disconnect", "code": 1000})
        await self.inner.wait(5)


@pytest.mark.parametrize(
    ("origin", "is_let_in"),
    [
        (b"http://127.0.0.1:8400", True),
        (b"http://LOCALHOST:8400", True),
        (b"http://[::1]:8400", True),
        (b"http://127.0.0.1:8888", False),
        (b"http://127.0.0.1", False),
        (b"https://127.0.0.1:8400", False),
        (b"http://127.0.0.1:8400.evil.example", False),
        (b"http://evil.example", False),
        (b"http://127.0.0.1:999999", False),
        (b"\xff\xfe", False),
        (b"null", False),
        (None, False),
    ],
)
async def test_only_our_own_origin_with_its_port_opens_a_socket(origin: bytes | None, is_let_in: bool) -> None:
    application = ExactOrigin(Listener.as_asgi(), origins=settings.SPADEWORK_SOCKET_ORIGINS)
    headers = [] if origin is None else [(b"origin", origin)]
    socket = Socket(application, "/some-group", headers=headers)
    assert await socket.connect() is is_let_in
    await socket.close()


async def test_two_origin_headers_are_refused() -> None:
    application = ExactOrigin(Listener.as_asgi(), origins=settings.SPADEWORK_SOCKET_ORIGINS)
    ours = (b"origin", b"http://127.0.0.1:8400")
    socket = Socket(application, "/some-group", headers=[ours, ours])
    assert await socket.connect() is False
    await socket.close()


async def test_a_socket_that_hears_nothing_for_seven_seconds_is_still_there() -> None:
    """redis-py 8 ends a blocking read after 5 s unless told not to; both layers of channels_redis are held to it."""
    layer = get_channel_layer()
    group = f"idle-{uuid.uuid4().hex}"
    socket = Socket(Listener.as_asgi(), f"/{group}")
    assert await socket.connect()
    # The other layer reads with the blocking command that the time-out hits hardest.
    core = RedisChannelLayer(hosts=settings.CHANNEL_LAYERS["default"]["CONFIG"]["hosts"], prefix=group)
    channel = await core.new_channel()
    reading = asyncio.create_task(core.receive(channel))
    await asyncio.sleep(7)
    assert not reading.done(), reading.exception()
    await layer.group_send(group, {"type": "wake", "seq": 41})
    assert await socket.receive_json() == {"seq": 41}
    await core.send(channel, {"type": "wake", "seq": 42})
    assert (await asyncio.wait_for(reading, 5))["seq"] == 42
    await socket.close()
    await core.close_pools()
