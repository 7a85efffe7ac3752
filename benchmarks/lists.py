"""Options whose value is a list, separated by commas."""

from __future__ import annotations

import math
from collections.abc import Collection

from shisha_rt.errors import BadInput


def words_in(option: str, text: str, known: Collection[str]) -> list[str]:
    """The words of a list. Raises BadInput for one that is not `known`."""
    words = text.split(",")
    if unknown := sorted(set(words) - set(known)):
        raise BadInput(f"{option} {text}: {unknown[0] or 'an empty word'}, expected some of {', '.join(known)}")
    return words


def numbers_in(option: str, text: str) -> list[float]:
    """The numbers of a list. Raises BadInput for what is none, or is not above 0."""
    try:
        numbers = [float(word) for word in text.split(",")]
    except ValueError:
        numbers = [math.nan]
    if not all(0 < number < math.inf for number in numbers):
        raise BadInput(f"{option} {text}: expected numbers above 0, separated by commas")
    return numbers


def counts_in(option: str, text: str) -> list[int]:
    """The whole numbers of a list, as `numbers_in`."""
    numbers = numbers_in(option, text)
    if not all(number.is_integer() for number in numbers):
        raise BadInput(f"{option} {text}: expected whole numbers, separated by commas")
    return [int(number) for number in numbers]
