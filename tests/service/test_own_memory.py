"""The tests of the service on GPUs (tests/gpu/test_service.py), on CPU workers that keep tensors as GPUs do."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

os.environ["SERVICE_TEST_DEVICES"] = "cpu:2"
_spec = importlib.util.spec_from_file_location("gpu_service", Path(__file__).parent.parent / "gpu" / "test_service.py")
assert _spec is not None and _spec.loader is not None
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)
globals().update({name: value for name, value in vars(_module).items() if name.startswith("test_")})
