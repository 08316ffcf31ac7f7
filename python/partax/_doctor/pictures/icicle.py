"""The icicle: how many equations of a program each line stands for, by call stack, the outermost call on top."""

import functools
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from partax._doctor.examined import Examined
from partax._doctor.finding import SEVERITIES, Finding
from partax._doctor.fusion import DECOMPOSITIONS, IN_PLACE, INLINED, TREATMENT, VIEW
from partax._doctor.lines import Line, stack_of

_BOXES = 800  # of one picture; what is smaller than all of these goes into "other"
_NARROWEST = 1 / 600  # of the picture
_NARROWEST_WITH_TEXT = 0.015
_DEEPEST = 40  # levels; a recursion has more

# What an operation is called in the legend, by its class of boxes.
_KINDS = {
    "algebra": "products, convolutions, solvers",
    "elementwise": "elementwise",
    "reduce": "reductions, sorts",
    "move": "copies, slices, scatters",
    "control": "loops, branches, calls",
    "effect": "random numbers, callbacks",
}
_ALGEBRA = DECOMPOSITIONS | {"dot_general", "conv_general_dilated", "ragged_dot", "tridiagonal", "fft"}
_MOVES = (
    "slice", "dynamic_slice", "gather", "concatenate", "pad", "rev", "split", "iota", "convert_element_type",
    "broadcast_in_dim", "device_put", "unstack", "stack",
)  # fmt: skip
_CALLS = INLINED | {"scan", "while", "cond", "remat", "remat2", "checkpoint", "custom_lin", "shard_map", "run_state"}
_EFFECTS = ("random_", "threefry", "rng_", "pure_callback", "io_callback", "debug_")


@functools.cache
def kind_of(primitive: str) -> str:
    """The class of boxes for a primitive."""
    if primitive in _ALGEBRA:
        return "algebra"
    if primitive in _CALLS:
        return "control"
    if primitive in _MOVES or primitive.startswith("scatter") or TREATMENT.get(primitive) in (VIEW, IN_PLACE):
        return "move"
    if primitive.startswith(_EFFECTS):
        return "effect"
    is_reduction = primitive.startswith(("reduce_", "cum", "sort", "top_k", "approx_top_k", "argm"))
    return "reduce" if is_reduction else "elementwise"


class Node:
    """A line in the call stack of equations.

    Attributes:
      line: the line; None of the program as a whole.
      depth: how many lines it is called through.
      below: the lines that it calls, in the program's order.
      kinds: how many equations it stands for, those below included, by kind.
    """

    __slots__ = ("below", "depth", "kinds", "line")

    def __init__(self, line: Line | None, depth: int):
        self.line = line
        self.depth = depth
        self.below: dict[Line, Node] = {}
        self.kinds: Counter[str] = Counter()

    @property
    def count(self) -> int:
        """How many in all."""
        return self.kinds.total()

    @property
    def kind(self) -> str:
        """The most frequent one."""
        return max(self.kinds, key=self.kinds.__getitem__, default="elementwise")


def call_tree(examined: Examined) -> Node:
    """All equations of a program by call stack, from the examined function on.

    jax knows of an equation of an inner program the lines from the inner function on, however often that is called:
    they stand below the lines of each call.
    """
    root = Node(None, 0)
    equations = examined.equations
    known: dict[tuple[int, Any], Node] = {}  # by traceback: those of a loop's turns are alike
    nodes: list[Node] = []
    for eqn, name, parent in zip(equations.eqns, equations.names, equations.parents, strict=True):
        above = root if parent < 0 else nodes[parent]
        key = (id(above), eqn.source_info.traceback)
        node = known.get(key)
        if node is None:
            node = above
            for line in stack_of(eqn)[: _DEEPEST - above.depth]:
                node = node.below.setdefault(line, Node(line, node.depth + 1))
            known[key] = node
        nodes.append(node)
        node.kinds[kind_of(name)] += 1
    for node in reversed(_preorder(root)):
        for below in node.below.values():
            node.kinds.update(below.kinds)
    return root


def _preorder(root: Node) -> list[Node]:
    found: list[Node] = []
    stack = [root]
    while stack:
        node = stack.pop()
        found.append(node)
        stack.extend(reversed(node.below.values()))
    return found


class Box(NamedTuple):
    """A line of the picture, as wide as its equations.

    Attributes:
      text: what stands in it.
      title: what a pointer over it shows.
      kind: its class of colours.
      equations: how many it stands for.
      own: how many of these are of no line below.
      below: the lines that it calls; those with few equations are one box, of the kind `other`.
    """

    text: str
    title: str
    kind: str
    equations: int
    own: int
    below: list["Box"]


class Icicle(NamedTuple):
    """The equations of a program by call stack, and the kinds and texts of the legend."""

    root: Box
    legend: list[tuple[str, str]]


def icicle(examined: Examined, findings: Sequence[Finding] = (), boxes: int = _BOXES) -> Icicle:
    """The equations of a program by call stack: the width of a box is its number of equations.

    Lines that something was found about are outlined. There are at most so many boxes, but for those of "other".
    """
    root = call_tree(examined)
    # A line has no more equations than its caller, which comes before it where they have as many.
    by_size = sorted(_preorder(root), key=lambda node: -node.count)[:boxes]
    drawn = {id(node) for node in by_size if node.count >= _NARROWEST * root.count}
    worst = sorted(findings, key=lambda it: SEVERITIES.index(it.severity), reverse=True)
    found = {(it.file, it.line): it.severity for it in worst if it.file}

    def box(node: Node) -> Box:
        share = node.count / max(root.count, 1)
        told = f"{node.count:,} equations, {share:.1%} of all; mostly {_KINDS[node.kind]}"
        text, kind = f"{examined.name}: {node.count:,} equations", node.kind
        title = f"{examined.name}\n{told}"
        if node.line is not None:
            place, source = node.line.place, node.line.source
            name = node.line.function.rpartition("<locals>.")[2]
            text, title = f"{node.line.short_place}  {source or name}", f"{place} in {name}\n{source}\n{told}"
            severity = found.get((node.line.file, node.line.line))
            if severity is not None:
                kind += f" found {severity}"
                title += f"\na finding of severity {severity} is about this line"
        below = [box(it) for it in node.below.values() if id(it) in drawn]
        others = sum(it.count for it in node.below.values() if id(it) not in drawn)
        own = node.count - others - sum(it.equations for it in below)
        if others:
            title_of_others = f"other: {others:,} equations of lines with few each"
            below.append(Box("other", title_of_others, "other", others, others, []))
        return Box(text if share >= _NARROWEST_WITH_TEXT else "", title, kind, node.count, own, below)

    legend = [(kind, text) for kind, text in _KINDS.items() if kind in root.kinds]
    if found:
        legend.append(("found", "a finding is about this line"))
    return Icicle(box(root), legend)
