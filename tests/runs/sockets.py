"""A WebSocket client at the ASGI boundary (Channels' own needs daphne)."""

from __future__ import annotations

from asgiref.testing import ApplicationCommunicator


class SocketClient(ApplicationCommunicator):
    """Speaks to one application as a server would on behalf of one browser socket."""

    def __init__(self, application: object, path: str, headers: list[tuple[bytes, bytes]]) -> None:
        address, _, query = path.partition("?")
        scope = {
            "type": "websocket",
            "path": address,
            "query_string": query.encode(),
            "headers": headers,
            "subprotocols": [],
        }
        super().__init__(application, scope)

    async def connect(self, timeout: float = 30) -> bool:
        """True when the application accepts."""
        await self.send_input({"type": "websocket.connect"})
        answer = await self.receive_output(timeout)
        return bool(answer["type"] == "websocket.accept")

    async def send_text(self, text: str) -> None:
        await self.send_input({"type": "websocket.receive", "text": text})

    async def receive_text(self, timeout: float = 30) -> str:
        message = await self.receive_output(timeout)
        assert message["type"] == "websocket.send", message
        return str(message["text"])

    async def close_code(self, timeout: float = 30) -> int:
        """The code with which the application closes, frames before it skipped."""
        while True:
            message = await self.receive_output(timeout)
            if message["type"] == "websocket.close":
                return int(message["code"])

    async def disconnect(self) -> None:
        await self.send_input({"type": "websocket.disconnect", "code": 1000})
        await self.wait(30)
