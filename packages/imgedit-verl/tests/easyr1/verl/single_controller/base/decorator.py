"""Marks by which a worker group knows how to call a method of its workers."""

from enum import Enum, auto
from functools import wraps
from typing import Any

MAGIC_ATTR = "attrs_3141562937"


class Dispatch(Enum):
    RANK_ZERO = auto()
    ONE_TO_ALL = auto()
    ALL_TO_ALL = auto()
    DP_COMPUTE = auto()
    DP_COMPUTE_PROTO = auto()
    DP_COMPUTE_PROTO_WITH_FUNC = auto()
    DP_COMPUTE_METRIC = auto()


class Execute(Enum):
    ALL = 0
    RANK_ZERO = 1


def register(
    dispatch_mode: Any = Dispatch.ALL_TO_ALL,
    execute_mode: Any = Execute.ALL,
    blocking: bool = True,
    materialize_futures: bool = True,
) -> Any:
    assert isinstance(dispatch_mode, Dispatch | dict)

    def decorator(function: Any) -> Any:
        @wraps(function)
        def inner(*arguments: Any, **named: Any) -> Any:
            return function(*arguments, **named)

        attributes = {
            "dispatch_mode": dispatch_mode,
            "execute_mode": execute_mode,
            "blocking": blocking,
        }
        setattr(inner, MAGIC_ATTR, attributes)
        return inner

    return decorator
