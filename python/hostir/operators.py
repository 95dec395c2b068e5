"""Python's operators on values, each of which records an operation: of tensors a tensor, of host scalars alone a host
scalar. Anything that is no value and no number is left to Python, which raises TypeError."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, overload

from .numbers import as_number

if TYPE_CHECKING:
    from .numbers import Number
    from .tensor import Tensor
    from .value import Operand, Scalar


class _OfTensor(Protocol):
    def __call__(self, other: Operand, /) -> Tensor: ...


class _OfScalar(Protocol):
    @overload
    def __call__(self, other: Tensor, /) -> Tensor: ...
    @overload
    def __call__(self, other: Scalar | Number, /) -> Scalar: ...


class _TensorOf(Protocol):
    def __call__(self) -> Tensor: ...


class _ScalarOf(Protocol):
    def __call__(self) -> Scalar: ...


def _binary(op: str, swap: bool = False) -> Any:
    def operator(self: Any, other: Any) -> Any:
        if getattr(other, "_definition", None) is None and as_number(other) is None:
            return NotImplemented
        return self._definition.ops._record(op, [other, self] if swap else [self, other])

    return operator


def _unary(op: str) -> Any:
    def operator(self: Any) -> Any:
        return self._definition.ops._record(op, [self])

    return operator


class TensorOperators:
    __add__: _OfTensor = _binary("add")
    __radd__: _OfTensor = _binary("add", swap=True)
    __sub__: _OfTensor = _binary("sub")
    __rsub__: _OfTensor = _binary("sub", swap=True)
    __mul__: _OfTensor = _binary("mul")
    __rmul__: _OfTensor = _binary("mul", swap=True)
    __truediv__: _OfTensor = _binary("truediv")
    __rtruediv__: _OfTensor = _binary("truediv", swap=True)
    __mod__: _OfTensor = _binary("remainder")
    __rmod__: _OfTensor = _binary("remainder", swap=True)
    __pow__: _OfTensor = _binary("pow")
    __rpow__: _OfTensor = _binary("pow", swap=True)
    __and__: _OfTensor = _binary("bitwise_and")
    __rand__: _OfTensor = _binary("bitwise_and", swap=True)
    __or__: _OfTensor = _binary("bitwise_or")
    __ror__: _OfTensor = _binary("bitwise_or", swap=True)
    __xor__: _OfTensor = _binary("bitwise_xor")
    __rxor__: _OfTensor = _binary("bitwise_xor", swap=True)
    __lt__: _OfTensor = _binary("lt")
    __le__: _OfTensor = _binary("le")
    __gt__: _OfTensor = _binary("gt")
    __ge__: _OfTensor = _binary("ge")
    __eq__: _OfTensor = _binary("eq")  # type: ignore[assignment]
    __ne__: _OfTensor = _binary("ne")  # type: ignore[assignment]
    __neg__: _TensorOf = _unary("neg")
    __abs__: _TensorOf = _unary("abs")
    __invert__: _TensorOf = _unary("bitwise_not")

    def __matmul__(self, other: Tensor) -> Tensor:
        if getattr(other, "_definition", None) is None:
            return NotImplemented
        made: Tensor = self._definition.ops.matmul(self, other)  # type: ignore[attr-defined]
        return made


class ScalarOperators:
    __add__: _OfScalar = _binary("add")
    __radd__: _OfScalar = _binary("add", swap=True)
    __sub__: _OfScalar = _binary("sub")
    __rsub__: _OfScalar = _binary("sub", swap=True)
    __mul__: _OfScalar = _binary("mul")
    __rmul__: _OfScalar = _binary("mul", swap=True)
    __truediv__: _OfScalar = _binary("truediv")
    __rtruediv__: _OfScalar = _binary("truediv", swap=True)
    __mod__: _OfScalar = _binary("remainder")
    __rmod__: _OfScalar = _binary("remainder", swap=True)
    __pow__: _OfScalar = _binary("pow")
    __rpow__: _OfScalar = _binary("pow", swap=True)
    __and__: _OfScalar = _binary("bitwise_and")
    __rand__: _OfScalar = _binary("bitwise_and", swap=True)
    __or__: _OfScalar = _binary("bitwise_or")
    __ror__: _OfScalar = _binary("bitwise_or", swap=True)
    __xor__: _OfScalar = _binary("bitwise_xor")
    __rxor__: _OfScalar = _binary("bitwise_xor", swap=True)
    __lt__: _OfScalar = _binary("lt")
    __le__: _OfScalar = _binary("le")
    __gt__: _OfScalar = _binary("gt")
    __ge__: _OfScalar = _binary("ge")
    __eq__: _OfScalar = _binary("eq")  # type: ignore[assignment]
    __ne__: _OfScalar = _binary("ne")  # type: ignore[assignment]
    __neg__: _ScalarOf = _unary("neg")
    __abs__: _ScalarOf = _unary("abs")
    __invert__: _ScalarOf = _unary("bitwise_not")
