"""How much is logged is said in words that are known."""

from __future__ import annotations

import logging

import pytest

from tallyweir.sinks.process_log import read_log_level
from tallyweir.sinks.protocol.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "level"),
    [
        (None, logging.INFO),
        ("", logging.INFO),
        ("debug", logging.DEBUG),
        ("Info", logging.INFO),
        ("WARNING", logging.WARNING),
        ("error", logging.ERROR),
    ],
)
def test_a_level_is_one_of_four_words_and_info_by_default(
    text: str | None, level: int
) -> None:
    """In capitals or not."""
    environment = {} if text is None else {"TALLYWEIR_LOG_LEVEL": text}
    assert level == read_log_level(environment)


@pytest.mark.parametrize("text", ["inof", "10", "notset", " info"])
def test_a_level_that_nobody_knows_is_refused(text: str) -> None:
    """The error names the variable and what it holds."""
    with pytest.raises(ConfigurationError) as caught:
        read_log_level({"TALLYWEIR_LOG_LEVEL": text})
    assert "SETTING_INVALID" == caught.value.code
    assert f"TALLYWEIR_LOG_LEVEL is {text!r}" in caught.value.saw
