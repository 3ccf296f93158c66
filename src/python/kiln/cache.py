"""The cache of compiled kernels: what is in it, and keeping it in order."""

from __future__ import annotations

from kiln import _kiln
from kiln._kiln import Cache
from kiln._results import CacheEntry


def open(directory: str = "") -> Cache:  # noqa: A001: as in C++
    """The cache in a directory, or without one the cache that calls use."""
    return _kiln._open_cache(directory)


def use_remote(url: str, secret: str = "") -> None:
    """The server at ``url``, as in KILN_REMOTE_CACHE, is the remote tier from now on, of calls and of
    caches that are opened later, with a secret as in KILN_CACHE_SECRET; "": there is none."""
    _kiln._use_remote(url, secret)


__all__ = ["Cache", "CacheEntry", "open", "use_remote"]
