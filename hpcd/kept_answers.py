"""Answers of a function that are kept, for callers on several threads."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from threading import RLock
from typing import Any, Generic, ParamSpec, TypeVar

_Parameters = ParamSpec("_Parameters")
_Answer = TypeVar("_Answer")


class KeptAnswers(Generic[_Parameters, _Answer]):
    """``make`` with its ``most`` latest answers kept. A caller waits while another has one made,
    instead of making the same."""

    def __init__(self, make: Callable[_Parameters, _Answer], most: int = 1) -> None:
        self._lock = RLock()  # it may need another of its answers
        self._answers: Any = lru_cache(most)(make)

    def __call__(self, *args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Answer:
        """Return the answer to these arguments."""
        with self._lock:
            answer: _Answer = self._answers(*args, **kwargs)
            return answer

    @property
    def ready(self) -> bool:
        """Whether there is an answer already."""
        return bool(self._answers.cache_info().currsize)
