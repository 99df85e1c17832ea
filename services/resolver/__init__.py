"""The resolver: a service that finishes the branches that a crash has left prepared."""

from __future__ import annotations
