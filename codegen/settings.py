"""Sizes given in environment variables. Knows no variable's meaning."""

from __future__ import annotations

import logging
import os
import re

_SHIFT = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}


def size(name: str, default: int) -> int:
    """The bytes that an environment variable says, such as 1048576, 512M or 2GiB; else
    `default`.
    """
    text = os.environ.get(name, "").strip()
    if not text:
        return default
    match = re.fullmatch(r"(\d+)\s*([KMGT]?)(i?B)?", text, re.IGNORECASE)
    if match is None:
        logging.getLogger("tracer").warning(
            "%s=%r is not a size such as 512M; taking %d bytes", name, text, default
        )
        return default
    return int(match[1]) << _SHIFT[match[2].upper()]
