"""Where the result of a call goes: a variable, one of several (``a, b = ...``), an entry of a list or dict.

A function's bytecode is walked once, with a stack that knows which call made each value: what takes a value from it
says where the value goes. Where that cannot be told, a value has no name.
"""

from __future__ import annotations

import dis
import functools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from types import CodeType, FrameType
from typing import Any

RETURNED = "return"  # No variable has this name.
ANY = "*"  # The step of an entry of a list whose place is not known: who names it counts.
_NO_VALUE = {"NOP", "RESUME", "KW_NAMES", "MAKE_CELL", "COPY_FREE_VARS", "NOT_TAKEN", "DELETE_FAST"}
_CALLS = ("PRECALL", "CALL", "CALL_METHOD")
_MAKES_NONE = ("POP_", "STORE_", "DELETE_", "END_FOR")
_JUMPS = set(dis.hasjrel) | set(dis.hasjabs)
_ENDS = {"RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE"}
_ENDS |= {"JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_ABSOLUTE", "JUMP_BACKWARD_NO_INTERRUPT"}


@dataclass(frozen=True)
class Local:
    """A variable that holds the key of an entry."""

    name: str


@dataclass(frozen=True)
class Destination:
    """``name`` is a variable or RETURNED; of a value that is unpacked ``parts`` are. ``steps`` leads from there on."""

    name: str
    steps: tuple[Any, ...] = ()
    parts: tuple[Any, ...] = ()  # Variables, and tuples of such.
    plain: str = field(init=False, default="")  # The name of the value itself, where nothing more need be asked.

    def __post_init__(self) -> None:
        known = self.name != RETURNED and not self.parts and not any(isinstance(step, Local) for step in self.steps)
        object.__setattr__(self, "plain", _joined(self.name, self.steps) if known else "")

    def entry(self, step: Any) -> Destination:
        """Of what lies at ``step`` in the value."""
        if not self.parts:
            return Destination(self.name, (*self.steps, step))
        part = self.parts[step] if isinstance(step, int) and step < len(self.parts) else ""
        return Destination("", (), part) if isinstance(part, tuple) else Destination(part)

    def at(self, steps: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
        """The variable of what lies at ``steps`` in the value, and the steps from there."""
        place = self
        for step in steps:
            place = place.entry(step)
        return place.name, place.steps


@dataclass
class _Value:
    """What lies on the stack: made at ``offset``, or a constant, or a variable."""

    offset: int = -1
    end: int = -1
    constant: Any = None
    variable: str = ""
    attribute: str = ""
    method: str = ""  # It is the object of.
    entries: list[tuple[Any, _Value]] = field(default_factory=list)  # With the step to each.
    parts: list[Any] = field(default_factory=list)  # Where it is unpacked to: variables, and lists of such.
    part_of: tuple[_Value, int] | None = None


def variable_of(frame: FrameType, steps: tuple[Any, ...]) -> str:
    """The variable that the result of the call under way in ``frame`` goes to, or what lies at ``steps`` in it. A
    function that returns it is looked through: ``y = layer(x)``. Empty where there is none."""
    at: FrameType | None = frame
    while at is not None:
        destination = destinations(at.f_code).get(at.f_lasti)
        if destination is None:
            return ""
        if destination.plain and not steps:
            return destination.plain
        name, steps = destination.at(steps)
        steps = tuple([at.f_locals.get(s.name, ANY) if isinstance(s, Local) else s for s in steps])
        if name != RETURNED:
            return _joined(name, steps)
        at = at.f_back
    return ""


def _joined(name: str, steps: tuple[Any, ...]) -> str:
    """``layers.0.weight``; ``layers.*.weight`` where one place is not known."""
    if steps.count(ANY) > 1:
        steps = tuple([step for step in steps if step != ANY])
    joined = ".".join([name, *map(str, steps)])
    is_name = joined.isascii() and joined.replace(".", "_").replace(ANY, "_").isidentifier()
    return joined if name not in ("", "_") and is_name else ""


@functools.lru_cache(maxsize=4096)
def destinations(code: CodeType) -> dict[int, Destination]:
    """By the offset of the instruction that makes a value; no entry for one that goes nowhere."""
    walk = _Walk()
    instructions = [i for i in dis.get_instructions(code) if i.opname not in ("CACHE", "EXTENDED_ARG")]
    for k, instruction in enumerate(instructions):
        after = instructions[k + 1].offset if k + 1 < len(instructions) else instruction.offset + 2
        try:
            walk.step(instruction, after)
        except (IndexError, ValueError, TypeError):  # Bytecode of a Python that this does not know.
            return {}
    found: dict[int, Destination] = {}
    for value, destination in walk.taken:
        for offset, end, place in _spread(value, destination or Destination("", (), _tuples(value.parts))):
            # An instruction under way is at its own offset or at the end of what is cached behind it.
            for at in range(offset, end, 2):
                found.setdefault(at, place)  # x = y = f(): x.
    return found


def _spread(value: _Value, destination: Destination) -> Iterator[tuple[int, int, Destination]]:
    if value.offset >= 0:
        yield value.offset, value.end, destination
    for step, entry in value.entries:
        yield from _spread(entry, destination.entry(step))


def _tuples(parts: list[Any]) -> tuple[Any, ...]:
    return tuple([_tuples(part) if isinstance(part, list) else part for part in parts])


class _Walk:
    def __init__(self) -> None:
        self.stack: list[_Value] = []
        self.saved: dict[int, list[_Value]] = {}  # The stack where a jump leads to.
        self.dead = False  # Behind a jump that is always taken.
        self.taken: list[tuple[_Value, Destination | None]] = []  # None: it was unpacked.

    def pop(self) -> _Value:
        return self.stack.pop() if self.stack else _Value()

    def pops(self, count: int) -> list[_Value]:
        return [self.pop() for _ in range(count)][::-1]

    def step(self, i: dis.Instruction, after: int) -> None:
        if self.dead:
            self.stack, self.dead = list(self.saved.get(i.offset, [])), False
        if i.opcode in _JUMPS:
            self.jump(i)
        handle = getattr(self, f"on_{i.opname.lower()}", None)
        if i.opname.startswith("STORE_") and handle is None and isinstance(i.argval, (str, tuple)):
            self.stores(i)
        elif handle is not None:
            handle(i)
        elif i.opname not in _NO_VALUE:
            self.other(i, after)
        self.dead = i.opname in _ENDS

    def jump(self, i: dis.Instruction) -> None:
        effect = dis.stack_effect(i.opcode, i.arg, jump=True)
        stack = self.stack[: len(self.stack) + effect] if effect < 0 else [*self.stack, *[_Value()] * effect]
        self.saved.setdefault(i.argval, stack)

    def other(self, i: dis.Instruction, after: int) -> None:
        """Any instruction: as many values go as its effect says, and it makes one, unless its name says otherwise."""
        effect = dis.stack_effect(i.opcode, i.arg, jump=False)
        if i.opname in _CALLS and i.arg == 1 and len(self.stack) > 2 and self.stack[-3].method == "append":
            self.take(self.stack[-1], self.stack[-3].variable or self.stack[-3].attribute, (ANY,))
        if effect > 0:
            if self.stack and i.opname in ("LOAD_METHOD", "LOAD_ATTR"):  # The method goes below its object.
                self.stack[-1] = replace(self.stack[-1], method=i.argval)
            self.stack += [_Value() for _ in range(effect)]
        elif i.opname.startswith(_MAKES_NONE):
            self.pops(-effect)
        else:
            self.pops(1 - effect)
            self.stack.append(_Value(i.offset, after, attribute=i.argval if i.opname == "LOAD_ATTR" else ""))

    # --- what values are ------------------------------------------------------------------------------------------

    def on_load_const(self, i: dis.Instruction) -> None:
        self.stack.append(_Value(constant=i.argval))

    def loads(self, i: dis.Instruction) -> None:
        names = i.argval if isinstance(i.argval, tuple) else (i.argval,)
        self.stack += [_Value(variable=name) for name in names]

    on_load_small_int = on_load_const
    on_load_fast = on_load_fast_check = on_load_fast_borrow = on_load_name = on_load_deref = loads
    on_load_fast_load_fast = on_load_fast_borrow_load_fast_borrow = loads

    def on_copy(self, i: dis.Instruction) -> None:
        self.stack.append(self.stack[-i.argval] if i.argval <= len(self.stack) else _Value())

    def on_dup_top(self, i: dis.Instruction) -> None:
        self.stack.append(self.stack[-1] if self.stack else _Value())

    def on_swap(self, i: dis.Instruction) -> None:
        if i.argval <= len(self.stack):
            self.stack[-1], self.stack[-i.argval] = self.stack[-i.argval], self.stack[-1]

    def on_rot_two(self, i: dis.Instruction) -> None:
        self.stack += self.pops(2)[::-1]

    def on_rot_three(self, i: dis.Instruction) -> None:
        a, b, c = self.pops(3)
        self.stack += [c, a, b]

    # --- containers -------------------------------------------------------------------------------------------------

    def build(self, i: dis.Instruction) -> None:
        self.stack.append(_Value(entries=list(enumerate(self.pops(i.argval)))))

    on_build_tuple = on_build_list = build

    def on_build_map(self, i: dis.Instruction) -> None:
        flat = self.pops(2 * i.argval)
        self.stack.append(_Value(entries=[(_key(k), v) for k, v in zip(flat[::2], flat[1::2], strict=True)]))

    def on_build_const_key_map(self, i: dis.Instruction) -> None:
        keys = self.pop().constant or [None] * i.argval
        self.stack.append(_Value(entries=list(zip(keys, self.pops(i.argval), strict=True))))

    def on_list_append(self, i: dis.Instruction) -> None:
        value = self.pop()
        if i.argval <= len(self.stack):
            self.stack[-i.argval].entries.append((ANY, value))

    def on_map_add(self, i: dis.Instruction) -> None:
        key, value = self.pops(2)
        if i.argval <= len(self.stack):
            self.stack[-i.argval].entries.append((_key(key), value))

    def on_unpack_sequence(self, i: dis.Instruction) -> None:
        whole = self.pop()
        whole.parts = [""] * i.argval
        if whole.part_of is not None:
            outer, k = whole.part_of
            outer.parts[k] = whole.parts
        self.stack += [_Value(part_of=(whole, k)) for k in reversed(range(i.argval))]

    # --- what takes values ------------------------------------------------------------------------------------------

    def take(self, value: _Value, name: str, steps: tuple[Any, ...] = ()) -> None:
        if value.part_of is not None:
            whole, k = value.part_of
            whole.parts[k] = name
            while whole.part_of is not None:
                whole, _ = whole.part_of
            self.taken.append((whole, None))
        else:
            self.taken.append((value, Destination(name, steps)))

    def stores(self, i: dis.Instruction) -> None:
        """STORE_FAST and its kin; STORE_FAST_STORE_FAST stores two, STORE_FAST_LOAD_FAST loads the other."""
        names = i.argval if isinstance(i.argval, tuple) else (i.argval,)
        self.take(self.pop(), names[0])
        if i.opname == "STORE_FAST_STORE_FAST":
            self.take(self.pop(), names[1])
        elif len(names) > 1:
            self.stack.append(_Value(variable=names[1]))

    def on_store_attr(self, i: dis.Instruction) -> None:
        value, _ = self.pops(2)
        self.take(value, i.argval)

    def on_store_subscr(self, i: dis.Instruction) -> None:
        value, container, key = self.pops(3)
        self.take(value, container.variable or container.attribute, (_key(key),))

    def on_return_value(self, i: dis.Instruction) -> None:
        self.take(self.pop(), RETURNED)


def _key(key: _Value) -> Any:
    return Local(key.variable) if key.variable else ANY if key.constant is None else key.constant
