"""hostir: tensor programs on many devices, as a service.

import numpy as np, hostir
from hostir import DataType, FusionDefinition

with FusionDefinition() as fd:
    x = fd.define_tensor(shape=[-1, -1], contiguity=True, dtype=DataType.Float)
    fd.add_output(fd.ops.exp(x + 1))
with hostir.connect() as client:
    (y,) = client.run(fd, [np.zeros((2, 3), np.float32)])
    print(y.numpy())
"""

import pkgutil

# The generated modules (hostir.v1, the op table) lie in the build folder when the package runs from its sources.
__path__ = pkgutil.extend_path(__path__, __name__)

from . import nn
from .array import Array
from .client import Client
from .connecting import connect, from_shards
from .definition import FusionDefinition
from .dtypes import DataType
from .errors import (
    Aborted,
    Cancelled,
    DataLoss,
    DeadlineExceeded,
    FailedPrecondition,
    HostirError,
    Internal,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
    Unimplemented,
)
from .mesh import DeviceMesh, ParallelType
from .named_program import NamedProgram
from .plan import Communication, KernelCost, Plan, Segment
from .profile import Profile, SegmentTime
from .progress import PlanProgress
from .sharding import Sharding
from .size import Size
from .values import Scalar, Tensor

__version__ = "0.1.0"


__all__ = [
    "Aborted",
    "Array",
    "Cancelled",
    "Client",
    "Communication",
    "DataLoss",
    "DataType",
    "DeadlineExceeded",
    "DeviceMesh",
    "FailedPrecondition",
    "FusionDefinition",
    "HostirError",
    "Internal",
    "InvalidArgument",
    "KernelCost",
    "NamedProgram",
    "NotFound",
    "ParallelType",
    "PermissionDenied",
    "Plan",
    "PlanProgress",
    "Profile",
    "ResourceExhausted",
    "Scalar",
    "Segment",
    "SegmentTime",
    "Sharding",
    "Size",
    "Tensor",
    "Unauthenticated",
    "Unavailable",
    "Unimplemented",
    "connect",
    "from_shards",
    "nn",
]
