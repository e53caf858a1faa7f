"""What a column of text may have been meant as."""

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
    """Whether each text is a number.

    Example:
        >>> are_numbers(["1", "-2.5e3"]), are_numbers(["1", "x"])
        (True, False)
    """
    return all(re.fullmatch(_NUMBER, text) for text in texts)


def first_text(values: Any) -> int | None:
    """Where the first text is that is no number; None if all are numbers or missing.

    Example:
        >>> first_text(pa.array(["1", None, "x"])), first_text(pa.array(["1", "2"]))
        (2, None)
    """
    matches = pa.compute.match_substring_regex(values, f"^({_NUMBER})$")
    row = matches.index(False).as_py()
    return None if row < 0 else int(row)


def stray_text(counts: Counter[str]) -> str | None:
    """The first text that is no number where most are; None if all or too few are numbers.

    Example:
        >>> stray_text(Counter({"1": 6, "2.5": 5, "?": 1}))
        '?'
    """
    texts, is_number = list(counts), _like(_NUMBER, counts)
    if all(is_number) or _share(counts, is_number) < _MOST:
        return None
    return texts[is_number.index(False)]


def text_hint(counts: Counter[str], where: str = "") -> str:
    """What stands against reading the texts as numbers or dates, if most look like that.

    Args:
        counts: how often each text occurs.
        where: the place of the stray text, if there is one.

    Example:
        >>> text_hint(Counter(["01/02/2020", "03/02/2020"]))
        'its values look like dates, which are read if written as 2024-01-31'
        >>> text_hint(Counter(["Oslo", "Rome"]))
        ''
    """
    stray = stray_text(counts)
    if stray is not None:
        return f"it would be numbers but for {stray[:50]!r}{where}"
    is_number = _like(_NUMBER, counts)
    if all(is_number):
        return ""
    if _share(counts, _like(_DATE, counts)) >= _MOST:
        return "its values look like dates, which are read if written as 2024-01-31"
    if _share(counts, _like(f"({_NUMBER})|({_DECORATED})", counts)) >= _MOST:
        some = list(counts)[is_number.index(False)]
        return f"its values look like numbers ({some!r}), which are read if written as 1234.5"
    return ""


def _like(pattern: str, counts: Counter[str]) -> list[bool]:
    texts = pa.array(list(counts), pa.string())
    return pa.compute.match_substring_regex(texts, f"^({pattern})$").to_pylist()


def _share(counts: Counter[str], chosen: Sequence[bool]) -> float:
    matching = sum(count for count, is_in in zip(counts.values(), chosen, strict=True) if is_in)
    return matching / counts.total()
