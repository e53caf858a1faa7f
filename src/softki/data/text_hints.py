"""Hints of what a column of text may have been meant as."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from softki.data.arrow import pa

# The share of the values that must look alike.
_MOST = 0.9
_NUMBER = r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*"
_DATE = r"\s*\d{1,4}[-/. ]\d{1,2}[-/. ]\d{1,4}([ T].*)?"
# Thousands, decimal commas, currencies and per cent.
_DECORATED = r"[-+]?[$€£]?\s*[-+]?(\d{1,3}([., ']\d{3})+|\d+)([.,]\d+)?\s*[%$€£]?"


def are_numbers(texts: Sequence[str]) -> bool:
    """True if each text is a number.

    Example:
        >>> are_numbers(["1", "-2.5e3"]), are_numbers(["1", "x"])
        (True, False)
    """
    return all(re.fullmatch(_NUMBER, text) for text in texts)


def first_text(values: Any) -> int | None:
    """The index of the first text that is no number; None if all are numbers or missing.

    Example:
        >>> first_text(pa.array(["1", None, "x"])), first_text(pa.array(["1", "2"]))
        (2, None)
    """
    matches = pa.compute.match_substring_regex(values, f"^({_NUMBER})$")
    row = matches.index(False).as_py()
    return None if row < 0 else int(row)


def text_hint(counts: Counter[str], where: str = "") -> str:
    """The reason why texts are not read as numbers or dates, if most look like that.

    Args:
        counts: how often each text occurs.
        where: place of the first text that is no number, in words.

    Example:
        >>> text_hint(Counter({"1": 6, "2.5": 5, "?": 1}), " in line 13")
        "it would be numbers but for '?' in line 13"
        >>> text_hint(Counter(["01/02/2020", "03/02/2020"]))
        'its values look like dates, which are read if written as 2024-01-31'
        >>> text_hint(Counter(["Oslo", "Rome"]))
        ''
    """
    is_number = _like(_NUMBER, counts)
    if all(is_number):
        return ""
    first = list(counts)[is_number.index(False)]
    if _share(counts, is_number) >= _MOST:
        return f"it would be numbers but for {first[:50]!r}{where}"
    if _share(counts, _like(_DATE, counts)) >= _MOST:
        return "its values look like dates, which are read if written as 2024-01-31"
    if _share(counts, _like(f"({_NUMBER})|({_DECORATED})", counts)) >= _MOST:
        return f"its values look like numbers ({first!r}), which are read if written as 1234.5"
    return ""


def _like(pattern: str, counts: Counter[str]) -> list[bool]:
    texts = pa.array(list(counts), pa.string())
    return pa.compute.match_substring_regex(texts, f"^({pattern})$").to_pylist()


def _share(counts: Counter[str], chosen: Sequence[bool]) -> float:
    matching = sum(count for count, is_in in zip(counts.values(), chosen, strict=True) if is_in)
    return matching / counts.total()
