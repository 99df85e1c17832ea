"""A monitor with a token of each role, in a browser and without one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from playwright.sync_api import Locator, Page, expect

from integration_tests.harness.monitor_service import running_monitor
from tallyweir.services.monitor.tokens import PAGE_TOKENS, Role, make_token
from tallyweir.services.process.hashed_secrets import add_secret

#: A dry run asks Kafka, and a busy machine takes its time.
_ACT_MS = 20_000


@dataclass(frozen=True, kw_only=True)
class PageAsker:
    """Asks a monitor; tokens by their roles."""

    client: httpx.Client
    tokens: Mapping[Role, str]

    @property
    def url(self) -> str:
        """Where the page is."""
        return str(self.client.base_url).rstrip("/")

    def open(self, page: Page, path: str, role: Role | None = None) -> None:
        """Go to a page, as somebody of a role."""
        page.goto(f"{self.url}/#/{path}")
        expect(page.locator("main h1")).to_be_visible()
        if role is None:
            return
        page.get_by_role("button", name="Enter token").press("Enter")
        page.get_by_label("Token", exact=True).fill(self.tokens[role])
        page.keyboard.press("Enter")
        expect(page.locator("#access")).to_contain_text("leave")

    def post(
        self, pipeline: str, act: str, role: Role, *, dry_run: bool, **arguments: str
    ) -> httpx.Response:
        """Ask for an act as the page does."""
        return self.client.post(
            f"/api/pipelines/{pipeline}/acts/{act}",
            json={"arguments": arguments, "dry_run": dry_run},
            headers={
                "x-tallyweir-act": "1",
                "authorization": f"Bearer {self.tokens[role]}",
            },
        )


@contextmanager
def asking(home_dsn: str, bootstrap: str, folder: Path) -> Iterator[PageAsker]:
    """Run a monitor with a tokens file in a folder."""
    file, tokens = folder / "tokens.json", {}
    for role in Role:
        token, tokens[role] = make_token(
            name=f"{role.value}.name", role=role, not_after=None
        )
        add_secret(file, PAGE_TOKENS, token)
    with running_monitor(home_dsn, bootstrap, "--tokens", str(file)) as client:
        yield PageAsker(client=client, tokens=tokens)


class ActDialog:
    """The dialog of an act, used by keyboard.

    Args:
        page: Where its button is.
        button: That opens it.
    """

    def __init__(self, page: Page, button: Locator) -> None:
        self.page = page
        title = button.inner_text()
        button.press("Enter")
        self.box = page.get_by_role("dialog", name=title)
        self.told = self.box.locator(".told")
        ends = self.box.locator(".ends")
        self.confirm = ends.get_by_role("button", name=title, exact=True)

    def try_out(self, *told: str, **values: str) -> None:
        """Fill in fields by their names, and see what the act would do."""
        self._fill(values)
        self.box.locator("form button").press("Enter")
        for words in (*told, "Nothing was changed"):
            expect(self.told).to_contain_text(words, timeout=_ACT_MS)
        expect(self.confirm).to_be_focused()

    def refused(self, code: str, *told: str, **values: str) -> None:
        """Fill in fields, and see that the act is refused, and why."""
        self._fill(values)
        self.box.locator("form button").press("Enter")
        for words in (code, *told):
            expect(self.told).to_contain_text(words, timeout=_ACT_MS)
        expect(self.confirm).to_be_disabled()

    def do(self, *told: str) -> None:
        """Confirm, see what was done, and leave."""
        self.page.keyboard.press("Enter")
        expect(self.confirm).to_have_count(0, timeout=_ACT_MS)
        for words in told:
            expect(self.told).to_contain_text(words)
        self.page.keyboard.press("Enter")
        expect(self.box).to_have_count(0)

    def _fill(self, values: dict[str, str]) -> None:
        # An act that asks for nothing tries itself out as soon as it is shown.
        expect(self.confirm).to_be_disabled()
        for name, value in values.items():
            field = self.box.locator(f"[name={name}]")
            if field.evaluate("field => field.tagName") == "SELECT":
                field.select_option(value)
            else:
                field.fill(value)
