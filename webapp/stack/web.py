"""The web server's process: uvicorn on a socket that the supervisor has bound (``python -m webapp.stack.web FD``)."""

import os
import socket
import sys

import uvicorn
from django.conf import settings

from webapp.core.schema import refuse_old_schema

_CLOSE_AFTER_S = 3


def main() -> None:
    """Serve until SIGTERM. Not uvicorn's own --fd, which takes the socket for a unix one and so leaves Nagle's delay on."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")
    refuse_old_schema()
    proxies: list[str] = settings.SPADEWORK_TRUSTED_PROXIES  # none without HTTPS: then no header is believed
    listener = socket.socket(fileno=int(sys.argv[1]))
    config = uvicorn.Config(
        "webapp.asgi:application",
        lifespan="off",
        access_log=False,
        # Every socket of a run gets the same frame; compressing it for each of them would cost more than sending it.
        ws_per_message_deflate=False,
        server_header=False,
        log_level="warning",
        timeout_graceful_shutdown=_CLOSE_AFTER_S,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=proxies,  # said even when empty: uvicorn would take FORWARDED_ALLOW_IPS from the environment
    )
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
