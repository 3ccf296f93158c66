"""The cache of compiled kernels: what is in it, and keeping it in order."""

from __future__ import annotations

from kiln import _kiln
from kiln._kiln import Cache
from kiln._results import CacheEntry


def open(directory: str = "") -> Cache:  # noqa: A001: as in C++
    """The cache in a directory, or without one the cache that calls use."""
    return _kiln._open_cache(directory)


__all__ = ["Cache", "CacheEntry", "open"]
