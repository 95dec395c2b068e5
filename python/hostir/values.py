"""The values of a definition: tensors and host scalars, and what their operations take for numbers."""

from .numbers import Number, as_axis, as_number, number_text
from .tensor import Tensor
from .value import Operand, Scalar, Value

__all__ = ["Number", "Operand", "Scalar", "Tensor", "Value", "as_axis", "as_number", "number_text"]
