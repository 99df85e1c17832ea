"""``images``: builds the container images from the lock files."""

from __future__ import annotations

from typing import Annotated

import typer

from tallyweir.services.cli.arguments import EndsWithJson
from tallyweir.services.cli.command import command
from tallyweir.services.cli.rendering import note, say, say_json


@command("tallyweir images", "tallyweir images --stand-ins")
def images(
    stand_ins: Annotated[
        bool,
        typer.Option(
            "--stand-ins",
            help="Build the public base images from Debian's packages (needs root).",
        ),
    ] = False,
    as_json: EndsWithJson = False,
) -> None:
    """Build the images tallyweir/services and tallyweir/spark.

    Wheels and jars are fetched first and checked by the hashes of the lock files; the
    builds have no network, and neither has a container anything left to download.
    """
    from tallyweir.services.dev.images.build import build_images

    built = build_images(uses_stand_ins=stand_ins, tell=note)
    for image in built:
        say(f"{image.name}  {image.size_b / 1e6:,.0f} MB  {image.image_id}")
    if as_json:
        say_json({image.name: image.size_b for image in built})
