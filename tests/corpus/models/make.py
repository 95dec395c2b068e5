"""Makes the programs of this folder anew: those that hostir.torch and hostir.jax come to of models of a small size.

make.py [--into FOLDER] [MODEL...]: `HOSTIR_BUILD_DIR=build/dev PYTHONPATH=python:build/dev/python python
tests/corpus/models/make.py` after a change of what a frontend makes; corpus_test with GOLDEN_UPDATE=1 then writes their
plans. Each model takes a training step, or an optimizer one, and each program that ran becomes a file.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parent
sys.path.append(str(FOLDER.parents[1] / "frontends/jax"))

import jax  # noqa: E402
import torch  # noqa: E402
import transformers as tf  # noqa: E402
from torch.distributed.tensor import Replicate, Shard  # noqa: E402
from torch.distributed.tensor import parallel as tp  # noqa: E402

import hostir  # noqa: E402
import hostir.jax  # noqa: E402
import hostir.torch  # noqa: E402
import models as of_jax  # noqa: E402
from hostir.definition import FusionDefinition  # noqa: E402

nn, F = torch.nn, torch.nn.functional
# Inputs of tests are integers below 16: they name words, positions, classes and experts.
WORDS, LENGTH, CLASSES = 32, 16, 16
VERSIONS = f"torch {torch.__version__.split('+')[0]}, transformers {tf.__version__}, jax {jax.__version__}"


class Made(NamedTuple):
    """What a model has come to."""

    definitions: list[FusionDefinition]
    inputs: dict[str, str]  # Names of the model's own for those of PyTorch's graphs.


def _source(placeholder: str) -> str:
    """ "l_self_modules_head_parameters_weight_" as "head.weight", "l_kwargs_input_ids_" as "input_ids"."""
    name = re.sub("_(modules|parameters|buffers)_", ".", placeholder.removesuffix("_"))
    return re.sub(r"^[lL]_((self|kwargs|args_\d+)[._])?", "", name)


def compiled(function: Any, known: Callable[[], dict[str, Any]] = dict) -> tuple[Any, Callable[[], Made]]:
    """``function``, compiled; and what it has come to, once it was called. ``known``: names of tensors."""
    inputs: dict[str, str] = {}

    def backend(module: Any, examples: Any) -> Any:
        assert not inputs, "the model is more than one graph: name its inputs by graph"
        names = {id(tensor): name for name, tensor in known().items()}
        own = [names[id(tensor)] for tensor in (*module.parameters(), *module.buffers())]
        sources = [_source(node.name) for node in module.graph.nodes if node.op == "placeholder"]
        own += [names.get(id(example), source) for example, source in zip(examples, sources, strict=True)]
        for k, name in enumerate(own):
            inputs[f"primals_{k + 1}"] = inputs[f"arg{k}_1"] = name
        return hostir.torch.backend(module, examples)

    def made() -> Made:
        return Made([fd for graph in hostir.torch.report().graphs for fd in graph.definitions()], inputs)

    return torch.compile(function, backend=backend, dynamic=False), made


def trained(model: Any, loss_of: Callable[[Any], Any]) -> Made:
    """One step, forward and backward."""
    called, made = compiled(model)
    loss_of(called).backward()
    return made()


def language(model: Any) -> Made:
    words, labels = torch.randint(0, WORDS, (2, 2, LENGTH))
    model.loss_type = "ForCausalLM"  # Else a warning parts the graph.
    return trained(model, lambda called: called(input_ids=words, labels=labels, use_cache=False).loss)


def images(model: Any, size: int) -> Made:
    pixels, classes = torch.randn(2, 3, size, size), torch.randint(0, CLASSES, (2,))

    def loss_of(called: Any) -> Any:
        result = called(pixels)
        return F.cross_entropy(getattr(result, "logits", result), classes)

    return trained(model, loss_of)


def gpt2() -> Made:
    config = tf.GPT2Config(vocab_size=WORDS, n_embd=32, n_layer=2, n_head=4, n_positions=LENGTH)
    config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.0
    return language(tf.GPT2LMHeadModel(config))


def _llama(heads: int, groups: int) -> Any:
    sizes = {"hidden_size": 8 * heads, "intermediate_size": 64, "num_hidden_layers": 1}
    config = tf.LlamaConfig(vocab_size=WORDS, num_attention_heads=heads, num_key_value_heads=groups, **sizes)
    return tf.LlamaForCausalLM(config)


def llama() -> Made:
    return language(_llama(4, 2))


def _llama_on_a_mesh(between: Any, styles: dict[str, Any]) -> Made:
    """``between``: how activations lie between the products; ``styles``: those of modules that have no product."""
    plan = {
        "model.embed_tokens": tp.RowwiseParallel(input_layouts=Replicate(), output_layouts=between),
        **{f"model.layers.*.self_attn.{name}_proj": tp.ColwiseParallel() for name in "qkv"},
        "model.layers.*.self_attn.o_proj": tp.RowwiseParallel(output_layouts=between),
        **{f"model.layers.*.mlp.{name}_proj": tp.ColwiseParallel() for name in ("gate", "up")},
        "model.layers.*.mlp.down_proj": tp.RowwiseParallel(output_layouts=between),
        "lm_head": tp.ColwiseParallel(input_layouts=between, output_layouts=Replicate()),
    }
    return language(hostir.torch.parallelize_module(_llama(8, 4), [0, 1, 2, 3], plan | styles))


def llama_tensor_parallel() -> Made:
    return _llama_on_a_mesh(Replicate(), {})


def llama_sequence_parallel() -> Made:
    split, whole = Shard(1), Replicate()
    by_name = {"input_kwarg_layouts": {"hidden_states": split}, "desired_input_kwarg_layouts": {"hidden_states": whole}}
    styles = {
        "model.layers.*.*_layernorm": tp.SequenceParallel(),
        "model.layers.*.self_attn": tp.PrepareModuleInput(**by_name),
        "model.layers.*.mlp": tp.PrepareModuleInput(input_layouts=split, desired_input_layouts=whole),
        "model.norm": tp.SequenceParallel(),
    }
    return _llama_on_a_mesh(split, styles)


def mixtral() -> Made:
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4}
    config = tf.MixtralConfig(vocab_size=WORDS, num_key_value_heads=2, num_local_experts=16, **sizes)
    return language(tf.MixtralForCausalLM(config))


def vit() -> Made:
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4}
    config = tf.ViTConfig(image_size=16, patch_size=4, num_labels=CLASSES, **sizes)
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0
    return images(tf.ViTForImageClassification(config), 16)


class UNetBlock(nn.Module):  # type: ignore[misc, name-defined]
    """Two levels of a U-Net: norms and activations between convolutions, a skip, and the step's embedding."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.norms = nn.ModuleList(nn.GroupNorm(4, width) for _ in range(3))
        self.step = nn.Linear(width, width)
        self.down = nn.Conv2d(width, width, 3, stride=2, padding=1)
        self.inner = nn.Conv2d(width, width, 3, padding=1)
        self.joined = nn.Conv2d(2 * width, width, 1)
        self.head = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, pixels: Any, step: Any) -> Any:
        first = self.first(pixels)
        x = self.down(F.silu(self.norms[0](first)))
        x = x + self.step(F.silu(step))[:, :, None, None]
        x = x + self.inner(F.silu(self.norms[1](x)))
        x = F.interpolate(x, scale_factor=2, mode="nearest")
        x = self.joined(torch.cat([x, first], 1))
        return self.head(F.silu(self.norms[2](x)))


def unet() -> Made:
    pixels, step, noise = torch.randn(2, 3, 8, 8), torch.randn(2, 16), torch.randn(2, 3, 8, 8)
    return trained(UNetBlock(), lambda called: F.mse_loss(called(pixels, step), noise))


class Mixer(nn.Module):  # type: ignore[misc, name-defined]
    """An MLP-mixer of two blocks on patches of 4 x 4."""

    def __init__(self, patches: int = 16, width: int = 32) -> None:
        super().__init__()
        self.embed = nn.Linear(48, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(4))
        self.tokens = nn.ModuleList(self.mlp(patches) for _ in range(2))
        self.channels = nn.ModuleList(self.mlp(width) for _ in range(2))
        self.head = nn.Linear(width, CLASSES)

    @staticmethod
    def mlp(width: int) -> Any:
        return nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, pixels: Any) -> Any:
        batch = pixels.shape[0]
        x = self.embed(pixels.reshape(batch, 3, 4, 4, 4, 4).permute(0, 2, 4, 1, 3, 5).reshape(batch, 16, 48))
        for k, (tokens, channels) in enumerate(zip(self.tokens, self.channels, strict=True)):
            x = x + tokens(self.norms[2 * k](x).transpose(1, 2)).transpose(1, 2)
            x = x + channels(self.norms[2 * k + 1](x))
        return self.head(x.mean(1))


def mixer() -> Made:
    return images(Mixer(), 16)


def _updated(optimizer_of: Callable[[Any], Any]) -> Made:
    """A step after the first, which has made the state."""
    parameters = {"matrix": nn.Parameter(torch.randn(12, 8)), "vector": nn.Parameter(torch.randn(12))}
    optimizer = optimizer_of(parameters.values())

    def known() -> dict[str, Any]:
        state = {f"{name}.{key}": v for name, p in parameters.items() for key, v in optimizer.state[p].items()}
        return {**parameters, **state, **{f"{name}.grad": p.grad for name, p in parameters.items()}}

    step, made = compiled(lambda: optimizer.step(), known)
    for function in (optimizer.step, step):
        for parameter in parameters.values():
            parameter.grad = torch.randn_like(parameter)
        function()
    return made()


def adamw() -> Made:
    return _updated(lambda parameters: torch.optim.AdamW(parameters, lr=1e-3))


def sgd() -> Made:
    return _updated(lambda parameters: torch.optim.SGD(parameters, lr=1e-2, momentum=0.9, nesterov=True))


def jax_training_step() -> Made:
    sizes = of_jax.Sizes(batch=2, words=WORDS)
    step = hostir.jax.jit(of_jax.sgd(of_jax.loss), donate_argnums=0)
    return Made([step.definition(of_jax.parameters(sizes, 0), *of_jax.batch(sizes, 0))], {})


MODELS: dict[str, tuple[str, Callable[[], Made]]] = {
    "gpt2": ("GPT-2 of two layers", gpt2),
    "llama": ("A Llama of one layer with grouped queries and rotary positions", llama),
    "llama_tensor_parallel": ("A Llama of one layer, tensor-parallel on four devices", llama_tensor_parallel),
    "llama_sequence_parallel": ("A Llama of one layer, sequence-parallel on four devices", llama_sequence_parallel),
    "mixtral": ("A Mixtral of one layer with 16 experts, between the products of its experts", mixtral),
    "vit": ("A vision transformer of one layer, behind the convolution of its patches", vit),
    "unet": ("Two levels of a U-Net, between its convolutions", unet),
    "mixer": ("An MLP-mixer of two blocks", mixer),
    "adamw": ("A step of AdamW on a matrix and a vector", adamw),
    "sgd": ("A step of SGD with Nesterov's momentum on a matrix and a vector", sgd),
    "jax_training_step": ("A transformer's training step with SGD, by JAX", jax_training_step),
}


def file_name(model: str, program: str) -> str:
    """ "unet_backward_2" of "backward1_2"; an optimizer's is its name alone."""
    found = re.fullmatch(r"([a-z]+)\d+(_\d+)?", program)
    kind, number = found.groups("") if found is not None else ("inference", "")
    return f"{model}{'' if kind == 'inference' else f'_{kind}'}{number}"


def wrapped(line: str) -> str:
    """The inputs in lines of 120 columns, where they are more than one."""
    if len(line) <= 120 or not line.startswith("fusion @"):
        return line
    head, inputs = line.split("(", 1)
    lines = [f"{head}("]
    for each in re.split(r"(?<=,) (?=%)", inputs):
        if len(lines) > 1 and len(lines[-1]) + 1 + len(each) <= 120:
            lines[-1] += f" {each}"
        else:
            lines.append(f"    {each}")
    return "\n".join(lines)


def text_of(name: str, title: str, definition: FusionDefinition, inputs: dict[str, str]) -> str:
    part = next((f", {part}" for part in ("forward", "backward") if f"_{part}" in name), "")
    program = str(definition).replace(f"fusion @{definition.name}(", f"fusion @{name}(", 1)
    taken = set(re.findall(r"%([\w.]+)", program))
    assert not taken & set(inputs.values()), f"{name}: names that the program has already"
    program = re.sub(r"%([\w.]+)", lambda found: f"%{inputs.get(found[1], found[1])}", program)
    squares = [each for each in inputs.values() if each.endswith("exp_avg_sq") and f"%{each}:" in program]
    comments = [f"{title}{part}.", f"Made by {VERSIONS}."]
    if squares:
        comments.append(f"Not negative: {' '.join(dict.fromkeys(squares))}")
    return "\n".join([*(f"// {each}" for each in comments), *map(wrapped, program.split("\n"))])


def programs(model: str, client: hostir.Client) -> dict[str, str]:
    """The texts of a model's programs by the names of their files, without ".hir"."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    hostir.torch.reset()
    hostir.torch.use(client)
    title, make = MODELS[model]
    made = make()
    hostir.torch.use(None)
    named = [(file_name(model, each.name), each) for each in made.definitions]
    assert len(dict(named)) == len(named), f"{model}: programs of one name"
    return {name: text_of(name, title, each, made.inputs) for name, each in named}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(MODELS)}; without: all")
    parser.add_argument("--into", type=Path, default=FOLDER, metavar="FOLDER")
    args = parser.parse_args()
    with hostir.connect(devices="cpu:4") as client:
        for name in args.models or MODELS:
            for file, text in programs(name, client).items():
                (args.into / f"{file}.hir").write_text(text)
                print(f"{file}.hir: {len(text)} bytes")


if __name__ == "__main__":
    main()
