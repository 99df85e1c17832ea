"""The monitor's process."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import structlog

from tallyweir.services.monitor.application import MonitorApplication
from tallyweir.services.process.http_server import DrainingServer, listen

#: Reads of the home database in flight are not worth waiting for.
_DRAIN_TIMEOUT_S = 2


def serve_monitor(  # noqa: PLR0913 (keyword-only; the settings of a service)
    *,
    home_dsn: str,
    acts_dsn: str,
    bootstrap: str,
    host: str,
    port: int,
    public_names: Iterable[str],
    tokens: Path | None,
    contracts: Path | None,
) -> None:
    """Serve until SIGTERM or Ctrl-C.

    Args:
        home_dsn: Connection string of the home database.
        acts_dsn: The same, for the login that does acts.
        bootstrap: Address of the broker.
        host: Address to listen on.
        port: Port to listen on; 0 for any free port, which the log names.
        public_names: Host names that requests may use, besides ``host`` and loopback's.
        tokens: The tokens file; None if the monitor only reads.
        contracts: The folder of contracts that are files next to pipeline files.

    Raises:
        ConfigurationError: ``ADDRESS_UNUSABLE``, ``PUBLIC_NAME_INVALID``, or the
            tokens file cannot be used.
    """
    with listen(host, port) as listener:
        application = MonitorApplication(
            home_dsn=home_dsn,
            acts_dsn=acts_dsn,
            bootstrap=bootstrap,
            tokens=tokens,
            contracts=contracts,
        )
        server = DrainingServer(
            application.pages,
            names=(host, *public_names),
            drain_timeout_s=_DRAIN_TIMEOUT_S,
            on_end=application.end,
        )
        log = structlog.get_logger()
        address, chosen = listener.getsockname()[:2]
        log.info("monitor listens", url=f"http://{address}:{chosen}/")
        server.run(sockets=[listener])
        log.info("monitor stopped")
