"""Plain data as typed records: what a fault's one line says."""

from __future__ import annotations

from typing import Literal

import msgspec
import pytest

from shisha_rt.checked import convert
from shisha_rt.errors import BadInput, Error
from tests.wording import raised


class _Record(msgspec.Struct):
    word: Literal["a", "b"] | None = None


@pytest.mark.parametrize("wrong", ["c", 1])
def test_the_words_of_an_optional_key_are_listed(wrong: object) -> None:
    with raised(BadInput, Error.WRONG_VALUE, match="word = .* a, b" if wrong == "c" else "word = 1"):
        convert({"word": wrong}, _Record, "FILE")
