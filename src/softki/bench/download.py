"""Files from the web: whole, checked, and resumed where a transfer broke off."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Iterator
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import BinaryIO
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from softki.exceptions import InvalidInputError, SoftKIError
from softki.files.atomic import checked_target

Progress = Callable[[int, int | None], None]

_log = logging.getLogger(__name__)
_TIMEOUT = 30.0  # seconds without a sign of the server
_CHUNK = 2**20
_CANNOT_RESUME = 416  # the server's answer to a range that is not in the file


class DownloadError(SoftKIError):
    """A file could not be downloaded; the message says why and what to do."""


class _BrokenTransferError(Exception):
    """The connection ended before the file did."""


def download(
    url: str, target: Path, sha256: str | None = None, progress: Progress | None = None
) -> None:
    """Download a file, so that it appears whole or not at all.

    What has arrived stands in `TARGET.part`. A later call goes on from there if the server
    allows it, and starts again if not.

    Args:
        url: address of the file.
        target: where to put it; its folder is made.
        sha256: that the file must have. Where none is known, nothing but the length is verified,
            and the SHA-256 that was seen is logged.
        progress: called with the number of bytes so far and of all, if known.
    """
    target = _prepared(target)
    part = target.with_name(f"{target.name}.part")
    try:
        _receive(url, part, progress)
        seen = _sha256(part)
        if sha256 is not None and seen != sha256:
            part.unlink()
            raise DownloadError(
                f"{url} is not the file that was expected: SHA-256 {sha256} expected, got {seen}; "
                "it was removed. Run again; if that does not help, the file there has changed"
            )
        os.replace(part, target)
    except OSError as error:
        raise InvalidInputError(f"cannot write {part}: {error.strerror or error}") from error
    if sha256 is None:
        _log.info("%s has the SHA-256 %s, which is not verified", url, seen)


def _prepared(target: Path) -> Path:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInputError(f"cannot make the folder {target.parent}: {error}") from error
    return checked_target(target)


def _receive(url: str, part: Path, progress: Progress | None) -> None:
    """The rest of the file into the part file."""
    have = part.stat().st_size if part.exists() else 0
    with _opened(url, have) as response:
        if response.status != 206:  # the whole file comes, not the range that was asked for
            have = 0
        length = response.headers.get("Content-Length")
        total = None if length is None else have + int(length)
        with open(part, "ab" if have else "wb") as file:
            try:
                _append(file, response, have, total, progress)
            except _BrokenTransferError as error:
                raise DownloadError(
                    f"the transfer of {url} broke off after {file.tell():,} bytes ({error}); "
                    "run again to go on from there"
                ) from error
            os.fsync(file.fileno())


def _append(
    file: BinaryIO, response: HTTPResponse, have: int, total: int | None, progress: Progress | None
) -> None:
    for chunk in _chunks(response):
        file.write(chunk)
        have += len(chunk)
        if progress is not None:
            progress(have, total)
    if total is not None and have != total:
        raise _BrokenTransferError(f"the file has {total:,}")


def _chunks(response: HTTPResponse) -> Iterator[bytes]:
    try:
        while chunk := response.read(_CHUNK):
            yield chunk
    except (OSError, HTTPException) as error:
        raise _BrokenTransferError(str(error) or type(error).__name__) from error


def _opened(url: str, have: int) -> HTTPResponse:
    headers = {"User-Agent": "softki", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    try:
        return urlopen(Request(url, headers=headers), timeout=_TIMEOUT)
    except HTTPError as error:
        with error:  # it holds the connection
            if have and error.code == _CANNOT_RESUME:
                return _opened(url, 0)
            raise DownloadError(
                f"the server answered {error.code} {error.reason} for {url}; "
                "has the file moved, or is the server out of order?"
            ) from error
    except (OSError, HTTPException) as error:
        reason = error.reason if isinstance(error, URLError) else error
        raise DownloadError(
            f"cannot reach {url}: {reason}; is there a network connection?"
        ) from error


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
