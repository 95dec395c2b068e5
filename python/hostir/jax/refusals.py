"""Errors about programs of JAX that hostir cannot run: they name the primitive, its types and the user's line."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from ..errors import Unimplemented
from ..location import caller_location, location_text

_OURS = tuple(
    os.path.dirname(os.path.abspath(path)) + os.sep
    for path in (jax.__file__, os.path.dirname(os.path.abspath(__file__)))
)

# Other ways to write it, by primitive.
REMEDIES = {
    "while": "write a Python loop, or lax.scan or lax.fori_loop with constant bounds",
    "conv_general_dilated": "cut patches by reshape and transpose and multiply matrices",
    "dot_general": "multiply matrices of floats or integers that hostir has",
}
_KNOWN = "float32, float64, float16, bfloat16, uint8, int8, int32, int64 and bool"
_DRAW = "draw outside and pass the numbers, or make the key inside from a constant seed: jax.random.key(0)"
_REMEDY = "compute it outside of the function and pass it as an argument"


def refused(equation: Any, why: str, remedy: str = "") -> Unimplemented:
    """The error for an equation of a jaxpr that no program of hostir can do."""
    name = equation.primitive.name
    types = f"{_types(equation.invars)} -> {_types(equation.outvars)}"
    at = line_of(equation) or caller_location()
    remedy = remedy or REMEDIES.get(name) or (_DRAW if name.startswith("random_") else _REMEDY)
    return Unimplemented(f"hostir.jax: {name} of {types}: {why}; {remedy}{f' ({at})' if at else ''}")


def refused_type(equation: Any, aval: Any) -> Unimplemented:
    """The error for an operand or result of a type that the equation cannot have in hostir."""
    dtype = aval.dtype
    if is_threefry(dtype):
        return refused(equation, "it takes no random keys", "split keys and index them one by one")
    if is_key(dtype):
        return refused(equation, "a random key of another generator than JAX's default one")
    here = " here" if np.dtype(dtype) == np.uint32 else ""  # Draws of random numbers may.
    remedy = f"convert it to one of these before: x.astype({nearest(dtype)})"
    if equation.primitive.name == "random_bits":
        remedy = "draw float32 and convert it: jax.random.uniform(key, shape).astype(jnp.bfloat16)"
    return refused(equation, f"hostir has no {dtype}{here}, only {_KNOWN}", remedy)


def nearest(dtype: Any) -> str:
    """The type to convert to from one that hostir has not."""
    return "jnp.int32" if np.dtype(dtype).kind in "iu" else "jnp.float32"


def type_text(aval: Any) -> str:
    """``float32[3,4]``, as JAX writes it."""
    dtype = getattr(aval, "dtype", None)
    return f"{dtype}[{','.join(map(str, getattr(aval, 'shape', ())))}]"


def _types(variables: Sequence[Any]) -> str:
    texts = [type_text(variable.aval) for variable in variables]
    shown = texts if len(texts) <= 6 else [*texts[:5], f"... {len(texts)} in all"]
    return f"({', '.join(shown)})" if len(texts) != 1 else shown[0]


def line_of(equation: Any) -> str:
    """``model.py:12: y = jnp.exp(x)``, the user's line that an equation comes from; empty where JAX kept none."""
    traceback = equation.source_info.traceback
    for frame in traceback.frames if traceback is not None else ():
        if _is_users(frame.file_name):
            return location_text(frame.file_name, frame.line_num)
    return ""


@functools.lru_cache(maxsize=4096)
def _is_users(path: str) -> bool:
    return not os.path.abspath(path).startswith(_OURS)


def is_key(dtype: Any) -> bool:
    """Whether it is the type of JAX's random keys."""
    return bool(jax.dtypes.issubdtype(dtype, jax.dtypes.extended))


def is_threefry(dtype: Any) -> bool:
    """Whether it is the type of keys of JAX's default generator."""
    return is_key(dtype) and str(dtype) == "key<fry>"


def numpy_dtype(dtype: Any) -> np.dtype[Any] | None:
    """NumPy's type for one of JAX; None for those of keys."""
    return None if is_key(dtype) else np.dtype(dtype)
