"""Participants: their branches, how these are prepared, and how they are finished."""
