"""The paths of profiles: their list, and their flame graphs."""

from __future__ import annotations

from fastapi import FastAPI, Response
from pydantic_core import to_json

from tallyweir.services.monitor.home_reader import HomeReader
from tallyweir.sinks.postgres.profiles import list_profiles, read_flame_graph

#: Nothing in a flame graph can run or load anything.
_SANDBOX = {"content-security-policy": "default-src 'none'; sandbox"}


class ProfilePaths:
    """Answers requests for profiles.

    Args:
        home: The home database.
    """

    def __init__(self, home: HomeReader) -> None:
        self._home = home

    def add_to(self, pages: FastAPI) -> None:
        """Add the paths to an application."""

        @pages.get("/api/pipelines/{name}/profiles")
        def profiles(name: str) -> Response:
            found = self._home.read(lambda c: list_profiles(c, name))
            return Response(to_json(found), media_type="application/json")

        @pages.get("/api/pipelines/{name}/profiles/{profile_id}.svg")
        def flame_graph(name: str, profile_id: int) -> Response:
            found = self._home.read(lambda c: read_flame_graph(c, name, profile_id))
            return Response(found, media_type="image/svg+xml", headers=_SANDBOX)
