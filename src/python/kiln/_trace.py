"""Functions of kiln's values: what is called and written while a Python function is traced."""

from __future__ import annotations

import inspect
import re
from typing import Any, Callable

from kiln import _kiln
from kiln._kiln import Function, Program, Value
from kiln._results import Error

_apply = _kiln._apply


# ---- Values --------------------------------------------------------------------------------------

_INFIX = {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "truediv": "div",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "pow": "power",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "lshift": "left_shift",
    "rshift": "right_shift",
}
_COMPARISONS = {
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
}
_PREFIX = {"neg": "neg", "invert": "bitwise_not", "abs": "abs"}


def _infix(name: str, reflected: bool) -> Callable[[Value, Any], Value]:
    if reflected:
        return lambda self, other: _apply(name, (other, self))
    return lambda self, other: _apply(name, (self, other))


def _prefix(name: str) -> Callable[[Value], Value]:
    return lambda self: _apply(name, (self,))


def _no_truth(self: Value) -> bool:
    raise Error(
        "a value that is being traced is not known yet, so it cannot decide an if, a while, an and "
        "or an or; use kiln.where(condition, a, b), & and |"
    )


def _no_items(self: Value) -> None:
    raise Error("the length of a value that is being traced is not known yet")


def _subscript(self: Value, items: Any) -> Value:
    items = items if isinstance(items, tuple) else (items,)
    at = [i for i, item in enumerate(items) if item is Ellipsis]
    if len(at) > 1:
        raise Error("x[...]: more than one ... was given")
    middle = at[0] if at else len(items)
    axis = 0
    for item in items[:middle]:
        self, axis = _subscript_axis(self, item, axis, 1)
    axis = -1
    for item in reversed(items[middle + 1 :]):
        self, axis = _subscript_axis(self, item, axis, -1)
    return self


def _subscript_axis(x: Value, item: Any, axis: int, step: int) -> tuple[Value, int]:
    """One item of a subscript at an axis, and the axis of the next item in that direction."""
    if item is None:
        return _kiln._expand_dims(x, axis), axis + step
    if isinstance(item, slice):
        whole = item.start is None and item.stop is None and item.step is None
        x = x if whole else _kiln._slice(x, axis, item.start, item.stop, item.step)
        return x, axis + step
    if isinstance(item, int) and not isinstance(item, bool):
        return _kiln._element(x, axis, item), axis
    raise Error(f"x[...]: expected integers, slices, None or ..., got {item!r}")


def _astype(self: Value, dtype: Any) -> Value:
    """Rounds or converts to a dtype: ``x.astype("bf16")``."""
    return _kiln._cast(self, dtype)


def _add_operators() -> None:
    for method, name in _INFIX.items():
        setattr(Value, f"__{method}__", _infix(name, False))
        setattr(Value, f"__r{method}__", _infix(name, True))
    for method, name in _COMPARISONS.items():
        setattr(Value, f"__{method}__", _infix(name, False))
    for method, name in _PREFIX.items():
        setattr(Value, f"__{method}__", _prefix(name))
    Value.__hash__ = object.__hash__
    Value.__bool__ = _no_truth
    Value.__len__ = _no_items
    Value.__iter__ = None
    Value.__getitem__ = _subscript
    Value.astype = _astype


_add_operators()


# ---- Functions by name ---------------------------------------------------------------------------


def _by_name(name: str) -> Callable[..., Value]:
    def function(*operands: Any, axis: int | tuple[int, ...] | None = None) -> Value:
        if axis is not None:
            operands += axis if isinstance(axis, tuple) else (axis,)
        return _apply(name, operands)

    function.__name__ = function.__qualname__ = name
    function.__module__ = "kiln"
    function.__doc__ = (
        f"Adds ``{name}`` of the text form to the function that is being traced; ``axis`` is one axis or "
        "several, as further operands are."
    )
    return function


functions = {name: _by_name(name) for name in _kiln.function_names()}


def cast(x: Value, dtype: Any) -> Value:
    """Rounds or converts to a dtype, as ``x.astype(dtype)`` does."""
    return _kiln._cast(x, dtype)


def bitcast(x: Value, dtype: Any) -> Value:
    """The same bits as another dtype of the same width."""
    return _kiln._bitcast(x, dtype)


def iota(axis: int | None = None, dtype: Any = "i32") -> Value:
    """The index of each element of the outputs along ``axis``, or among all of them in C order."""
    return _kiln._iota(axis, dtype)


def concat(values: Any, axis: int = 0) -> Value:
    """One after the other along an axis that they have; takes a Program."""
    return _apply("concat", (axis, *values))


def stack(values: Any, axis: int = 0) -> Value:
    """Side by side along a new axis; takes a Program."""
    return _apply("stack", (axis, *values))


def library_call(
    run: Callable[..., None],
    *inputs: Value,
    shapes: Callable[..., Any],
    dtypes: Callable[..., Any] | None = None,
    results: int = 1,
    name: str | None = None,
) -> Any:
    """Adds a call of your own, such as a GEMM, to the Program that is being traced.

    ``shapes(*input_shapes)`` returns the shape of the result, or with ``results`` above one a list of
    shapes; ``dtypes(*input_dtypes)`` likewise (default: the first input's dtype for all).
    ``run(stream, inputs, outputs)`` is called when the program runs, with the address of the stream
    and lists of ``kiln.View``, which every framework reads by ``from_dlpack``; it must write all
    outputs, on that stream.
    """

    def some(one_or_several: Any) -> Any:
        return one_or_several if results != 1 else [one_or_several]

    def all_shapes(given: Any) -> Any:
        return some(shapes(*given))

    def all_dtypes(given: Any) -> Any:
        return [given[0]] * results if dtypes is None else some(dtypes(*given))

    made = _kiln._library_call(
        name or getattr(run, "__name__", "call"), run, all_shapes, all_dtypes, results, inputs
    )
    return made if results != 1 else made[0]


# ---- Functions of callables and text -------------------------------------------------------------


def _arguments_of(body: Callable[..., Any]) -> list[str]:
    names = []
    for parameter in inspect.signature(body).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.KEYWORD_ONLY):
            raise Error(
                f"{body.__name__}: expected parameters that can be given by position, got '{parameter}'"
            )
        names.append(parameter.name)
    return names


def _make(what: Any, as_program: bool, name: str | None, arguments: Any, **options: Any) -> Any:
    chosen = (options["rounding"], options["accuracy"], options["on_miss"], as_program)
    if what is None:
        return lambda body: _make(body, as_program, name, arguments, **options)
    if isinstance(what, str):
        return _kiln._parse(name or "fused", what, list(arguments or ()), *chosen)
    if not callable(what):
        raise Error(f"fuse: expected an expression or a function, got {what!r}")
    named = name or re.sub(r"\W", "_", getattr(what, "__name__", "fused"))
    return _kiln._trace(named, list(arguments or _arguments_of(what)), what, *chosen)


def fuse(
    what: Any = None,
    *,
    name: str | None = None,
    arguments: Any = None,
    rounding: str = "once",
    accuracy: str = "storage",
    on_miss: str = "configured",
) -> Any:
    """A function that is one kernel, from an expression or a Python function of kiln's values.

    >>> swiglu = kiln.fuse("silu(gate) * up")
    >>> @kiln.fuse
    ... def swiglu(gate, up):
    ...     return kiln.silu(gate) * up

    ``rounding`` is "once" or "each", ``accuracy`` "storage", "fast" or "strict", ``on_miss``
    "compile", "fail", "background", "fallback" or "configured": what ``kiln.configure`` says, or
    else "compile". ``arguments`` are names that come first.
    """
    return _make(
        what, False, name, arguments, rounding=rounding, accuracy=accuracy, on_miss=on_miss
    )


def program(
    what: Any = None,
    *,
    name: str | None = None,
    arguments: Any = None,
    rounding: str = "once",
    accuracy: str = "storage",
    on_miss: str = "configured",
) -> Any:
    """A program, which may take several kernels, from text or a Python function, as ``fuse``."""
    return _make(what, True, name, arguments, rounding=rounding, accuracy=accuracy, on_miss=on_miss)


__all__ = ["Function", "Program", "Value", "functions"]
