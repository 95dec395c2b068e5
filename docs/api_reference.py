"""Makes the reference of the Python API, HTML, from the docstrings of the package, by pdoc.

./run docs [FOLDER]
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pdoc

# fd.ops is hostir.ops.Ops with the pointwise operations of _pointwise; this version may have no nn, and JAX and PyTorch
# may be missing.
MODULES = ["hostir", "hostir.ops", "hostir._pointwise", "hostir.nn", "hostir.jax", "hostir.torch"]


def there(module: str) -> bool:
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name not in (module, "jax", "torch"):
            raise
        return False
    return True


def main() -> int:
    folder = Path(sys.argv[1])
    pdoc.render.configure(docformat="markdown", show_source=False)
    pdoc.pdoc(*[module for module in MODULES if there(module)], output_directory=folder)
    print(folder / "hostir.html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
