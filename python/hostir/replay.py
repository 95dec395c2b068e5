"""A run written down for ``hostir replay``: its program, inputs, and what came of them, in a folder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import grpc
import numpy as np

from . import program, wire
from .array import Array
from .definition import FusionDefinition
from .dlpack import as_numpy
from .errors import HostirError
from .inputs import host_array, number
from .values import Scalar


class WrittenRun:
    """Around a run: inputs are there before it, outputs or its error after. Raises OSError for what cannot be written.

    Files: ``run.pb`` (proto/hostir/v1/recording.proto), ``in/NAME.npy``, ``out/NAME.npy``.
    """

    def __init__(
        self, folder: str | os.PathLike[str], fd: FusionDefinition, values: Sequence[Any], devices: int, kind: str
    ) -> None:
        self._folder = Path(folder)
        from . import __version__

        self._recording = wire.recording_pb2.Recording(
            program=program.source(fd), num_devices=devices, device_kind=kind, version=__version__
        )
        for index, (value, parameter) in enumerate(zip(values, fd.fusion.inputs(), strict=True)):
            if isinstance(parameter, Scalar):
                array = np.asarray(number(index, parameter.name, value)).astype(parameter.dtype)
            elif isinstance(value, Array):
                array = value.numpy()
            else:
                data_type = fd._record.params[index].dtype
                array = host_array(as_numpy(value), data_type, f"input {index} ({parameter.name})", parameter.name)
            self._save("in", parameter.name, array)

    def keep(self, names: Sequence[str], outputs: Sequence[Array]) -> None:
        for name, output in zip(names, outputs, strict=True):
            self._save("out", name, output.numpy())

    def _save(self, part: str, name: str, array: np.ndarray[Any, Any]) -> None:
        folder = self._folder / part
        folder.mkdir(parents=True, exist_ok=True)
        np.save(folder / f"{name}.npy", np.ascontiguousarray(array).reshape(array.shape))

    def __enter__(self) -> WrittenRun:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, HostirError):
            self._recording.error.code = grpc.StatusCode[error.code].value[0]
            self._recording.error.message = str(error)
        (self._folder / "run.pb").write_bytes(self._recording.SerializeToString())
