"""The errors that a user can cause; see `ops.errors`. Messages carry the line of the user's code."""

from __future__ import annotations

from ops.errors import *  # noqa: F403 - it holds nothing else
