"""hostir.jax: programs of JAX on the devices of a daemon.

import hostir.jax

step = hostir.jax.jit(train_step, donate_argnums=0)
params, loss = step(params, batch)  # Arrays of hostir, which stay on the devices.
"""

from .attention import dot_product_attention
from .jitted import Jitted, jit

__all__ = ["Jitted", "dot_product_attention", "jit"]
