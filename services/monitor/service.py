"""The monitor's process."""

from __future__ import annotations

import structlog

from services.http_server import DrainingServer, listen
from services.monitor.application import MonitorApplication

#: Reads of the home database in flight are not worth waiting for.
_DRAIN_TIMEOUT_S = 2


def serve_monitor(*, home_dsn: str, bootstrap: str, host: str, port: int) -> None:
    """Serve until SIGTERM or Ctrl-C.

    Args:
        home_dsn: Of the home database.
        bootstrap: Of the broker.
        host: Address to listen on.
        port: 0 for any; the log says which.

    Raises:
        ConfigurationError: ``ADDRESS_UNUSABLE``.
    """
    with listen(host, port) as listener:
        application = MonitorApplication(home_dsn=home_dsn, bootstrap=bootstrap)
        server = DrainingServer(
            application.pages,
            drain_timeout_s=_DRAIN_TIMEOUT_S,
            on_end=application.end,
        )
        log = structlog.get_logger()
        address, chosen = listener.getsockname()[:2]
        log.info("monitor listens", url=f"http://{address}:{chosen}/")
        server.run(sockets=[listener])
        log.info("monitor stopped")
