"""The icicle: how many equations of a program each line stands for, by call stack, the outermost call on top."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from partax._doctor.examined import Examined
from partax._doctor.finding import SEVERITIES, Finding
from partax._doctor.fusion import DECOMPOSITIONS, IN_PLACE, INLINED, TREATMENT, VIEW
from partax._doctor.lines import Line, stack_of
from partax._doctor.pictures.svg import WIDTH, Picture, box, drawing, fitted, label, width_of

_ROW = 22.0
_BOXES = 800  # of one picture; what is smaller than all of these goes into "other"
_NARROWEST = 2.0
_DEEPEST = 40  # levels; a recursion has more
_PADDING = 4.0
_GAP = 0.6  # between boxes

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
      count: how many in all.
    """

    __slots__ = ("below", "count", "depth", "kinds", "line")

    def __init__(self, line: Line | None, depth: int):
        self.line = line
        self.depth = depth
        self.below: dict[Line, Node] = {}
        self.kinds: dict[str, int] = {}
        self.count = 0

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
        kind = kind_of(name)
        node.kinds[kind] = node.kinds.get(kind, 0) + 1
    for node in reversed(_preorder(root)):
        for below in node.below.values():
            for kind, count in below.kinds.items():
                node.kinds[kind] = node.kinds.get(kind, 0) + count
        node.count = sum(node.kinds.values())
    return root


def _preorder(root: Node) -> list[Node]:
    found: list[Node] = []
    stack = [root]
    while stack:
        node = stack.pop()
        found.append(node)
        stack.extend(reversed(node.below.values()))
    return found


def icicle(examined: Examined, findings: Sequence[Finding] = (), boxes: int = _BOXES) -> Picture:
    """The equations of a program by call stack: the width of a box is its number of equations.

    Lines that something was found about are outlined. There are at most so many boxes, but for those of "other".
    """
    root = call_tree(examined)
    scale = WIDTH / max(root.count, 1)
    # A line has no more equations than its caller, which comes before it where they have as many.
    by_size = sorted(_preorder(root), key=lambda node: -node.count)[:boxes]
    drawn = {id(node) for node in by_size if node.count * scale >= _NARROWEST}
    found = {(it.file, it.line): it.severity for it in sorted(findings, key=_severity, reverse=True) if it.file}
    parts: list[str] = []
    deepest = 0
    stack = [(root, 0)]
    while stack:
        node, start = stack.pop()
        deepest = max(deepest, node.depth)
        parts += _node_box(examined, node, start, scale, found)
        others = 0
        for below in node.below.values():
            if id(below) in drawn:
                stack.append((below, start))
                start += below.count
            else:
                others += below.count
        if others:
            depth = node.depth + 1
            deepest = max(deepest, depth)
            title = f"other: {others:,} equations of lines with few each"
            data = f'data-depth="{depth}" data-equations="{others}"'
            parts.append(box(start * scale, depth * _ROW, others * scale, _ROW - 1, "other", title, data))
            parts.append(_in_box(start * scale, depth, others * scale, ("other",)))
    legend = [(kind, text) for kind, text in _KINDS.items() if kind in root.kinds]
    if found:
        legend.append(("found", "a finding is about this line"))
    return Picture(
        "Equations by call stack",
        "Each box is a line of code, and as wide as the equations that come from it; below it are the lines that it "
        "calls. Its colour is that of most of its equations.",
        drawing((deepest + 1) * _ROW, f"{root.count} equations of {examined.name} by call stack", parts),
        tuple(legend),
    )


def _severity(finding: Finding) -> int:
    return SEVERITIES.index(finding.severity)


def _node_box(
    examined: Examined, node: Node, start: int, scale: float, found: Mapping[tuple[str, int], str]
) -> list[str]:
    x, width, depth = start * scale, node.count * scale, node.depth
    kind = node.kind
    share = f"{node.count:,} equations, {node.count * scale / WIDTH:.1%} of all; mostly {_KINDS[kind]}"
    data = f'data-depth="{depth}" data-equations="{node.count}"'
    if node.line is None:
        title, texts = f"{examined.name}\n{share}", (f"{examined.name}: {node.count:,} equations", examined.name)
    else:
        place = node.line.place
        name = node.line.function.rpartition("<locals>.")[2]
        source = node.line.source
        title = f"{place} in {name}\n{source}\n{share}"
        short = f"{place.replace(chr(92), '/').rpartition('/')[2]}"
        texts = (f"{short}  {source}" if source else f"{short} {name}", short, f":{node.line.line}")
        severity = found.get((node.line.file, node.line.line))
        if severity is not None:
            kind += f" found {severity}"
            title += f"\na finding of severity {severity} is about this line"
    wide = max(width - _GAP, _GAP)
    return [box(x, depth * _ROW, wide, _ROW - 1, kind, title, data), _in_box(x, depth, width, texts)]


def _in_box(x: float, depth: int, width: float, texts: Sequence[str]) -> str:
    """The first text that has room in a box, or what has room of the first."""
    room = width - 2 * _PADDING
    text = fitted(texts[0], room)
    if width_of(texts[0]) > room and len(text) < len(texts[1 if len(texts) > 1 else 0]):
        text = next((it for it in texts[1:] if width_of(it) <= room), "")
    return label(x + _PADDING, depth * _ROW + 12.5, text)
