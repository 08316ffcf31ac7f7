"""Finds work of which most is thrown away, and that another operation of jax's would not do in the first place."""

import math
from collections.abc import Iterator
from typing import Any

from jax.extend.core import Literal

from partax._doctor import flat_program as flat
from partax._doctor.equations import bytes_of, inner_jaxprs, scan_parts
from partax._doctor.examined import Examined, definition
from partax._doctor.finding import Figures, Finding, finding_at
from partax._doctor.lines import Line, comes_from, is_of_jax
from partax._doctor.slow_operations import work_of
from partax._doctor.waste_texts import TEXTS
from partax._pytree.short_text import array_text
from partax._report.table import bytes_text

# On two shared cores an inverse of 256 rows takes 3 ms, a product of 512 x 512 matrices 2 ms, and a sort of 2**18
# numbers 20 ms: less is hidden by all else.
_FEWEST_ROWS = 256
_FEWEST_ELEMENTS = 1 << 18
_LEAST_WIDTH = 16  # of one matrix of a batch, of which the diagonal is used
_FEWEST_PRODUCTS = 512  # of which a Jacobian is made
_FEWEST_CLASSES = 1024
_FEWEST_HOT = 1 << 22  # elements of the one-hot array
_LONG_KERNEL = 1024  # places
_SMALLEST_PART = 16  # of what was sorted, stacked or indexed in a loop, one in so many is used
_FEWEST_STACKED = 16 << 20  # bytes of a scan's steps: those of short sequences nobody misses
_MUCH_WORK = 1 << 30  # multiplications of a chain of products, which take some 10 ms
_MUCH_COPIED = 1 << 28  # bytes in all turns of a loop, which take some 30 ms
_MUCH_ADDED = 1e8  # elements that a gradient adds in all turns of a loop
_TIMES_LESS = 8  # multiplications in another order
_FEWEST_TURNS = 1000  # of a map whose turns are small: each takes a microsecond more than its work
_SMALL_TURN = 4096  # elements of its largest array
_MOST_MAPPED = 64 << 20  # bytes of all arrays of all turns
_LEAST_SHARE = 0.25  # of a program's multiplications, of one product of which little is used
_TAKES = {"slice", "dynamic_slice", "gather"}
_OF_SMALL = (*flat.ELEMENTWISE, flat.REDUCE, flat.IN_PLACE)  # operations in them


def find(examined: Examined) -> Iterator[Finding]:
    if not examined.equations.named("scan") and examined.equations.largest < _FEWEST_ROWS**2:
        return
    found: dict[Line, Finding] = {}
    for program in flat.flat_program(examined).all:
        for at, text, aval, figures in _Reader(program).find():
            size, what = (aval, bytes_text(aval)) if isinstance(aval, int) else (bytes_of(aval), array_text(aval))
            message, advice = TEXTS[text]
            figures = {"bytes": size, **figures}
            line = program.line(at)
            line = line if line.file else definition(examined.function)
            finding = finding_at(line, "waste", "medium", message.format(what=what, **figures), advice, **figures)
            found.setdefault(line, finding)
    yield from found.values()


_Found = tuple[int, str, Any, Figures]  # the equation, the name of its text, the array or the bytes that it is about


class _Reader:
    def __init__(self, program: flat.FlatProgram) -> None:
        self.program, self.makers = program, program.makers
        loop = program.around
        self.turns = 1 if loop is None or loop.primitive.name != "scan" else int(loop.params["length"])
        self.results = set(program.results)

    def find(self) -> Iterator[_Found]:
        rules = {
            "sort": self._sorted, "scan": self._scan, "dot_general": self._product, "svd": self._full_factors,
            "reduce_sum": self._summed, "add_any": self._added, "conv_general_dilated": self._convolution,
            "split": self._unravelled, "select_n": self._copied, "argmax": self._drawn, "concatenate": self._shifted,
        }  # fmt: skip
        for i, eqn in enumerate(self.program.eqns):
            rule = rules.get(eqn.primitive.name)
            if rule is not None:
                yield from rule(i, eqn)
        of_calls = {
            "inv": self._multiplied, "_diag": self._diagonal, "diagonal": self._diagonal, "trace": self._diagonal,
            "kron": self._multiplied,
        }  # fmt: skip
        for call in {id(it): it for it in self.program.calls}.values():
            rule = None if call.eqn is None else of_calls.get(call.eqn.params.get("name", ""))
            if rule is not None and is_of_jax(call.jaxpr):
                yield from rule(call)

    def _maker(self, number: int) -> Any:
        return self.program.eqns[self.makers[number]] if number in self.makers else None

    def _uses(self, number: int, size: int = 0) -> list[int]:
        """The equations that use a value, or what is computed of each of so many elements; -1 for the result."""
        found: list[int] = [-1] if number in self.results else []
        left, known = [number], set[int]()
        for i in (i for number in left for i in self.program.readers.get(number, ())):
            eqn, treatment, result = self.program.eqns[i], self.program.treatments[i], self.program.writes[i][:1]
            is_view = treatment == flat.VIEW or eqn.primitive.name in ("rev", "neg")
            if not is_view and not (treatment in flat.ELEMENTWISE and math.prod(eqn.outvars[0].aval.shape) == size):
                found.append(i)
            elif i not in known:
                known.add(i)
                left += result
                found += [-1] if self.results.intersection(result) else []
        return found

    def _names(self, indices: list[int]) -> set[str]:
        return {self.program.eqns[i].primitive.name if i >= 0 else "" for i in indices}

    def _multiplied(self, call: flat.Call) -> Iterator[_Found]:
        """What is made to be multiplied, where a solve or the factors would do."""
        aval, uses = call.jaxpr.outvars[0].aval, self._uses(call.numbers[call.jaxpr.outvars[0]])
        is_inverse = call.eqn.params["name"] == "inv"
        is_large = aval.shape[-1] >= _FEWEST_ROWS if is_inverse else math.prod(aval.shape) >= _FEWEST_ELEMENTS
        if is_large and self._names(uses) == {"dot_general"}:
            yield uses[0], "inverse" if is_inverse else "product of all pairs", aval, {}

    def _convolution(self, index: int, eqn: Any) -> Iterator[_Found]:
        aval = eqn.invars[1].aval
        _, channels, *window = eqn.params["dimension_numbers"].rhs_spec
        length = math.prod(aval.shape[axis] for axis in window)
        work = flat.multiplications(eqn)
        if aval.shape[channels] == 1 and length >= _LONG_KERNEL and work >= _MUCH_WORK:
            yield index, "convolution", aval, {"length": length, "multiplications": work}

    def _diagonal(self, call: flat.Call) -> Iterator[_Found]:
        given, result = call.jaxpr.invars[0], call.jaxpr.outvars[0]
        shape, rank = given.aval.shape, len(result.aval.shape)
        if (len(shape), rank) == (1, 2):
            uses = [i for i in self._uses(call.numbers[result]) if self._names([i]) == {"dot_general"}]
            if uses and max(result.aval.shape) >= _FEWEST_ROWS:
                yield uses[0], "diagonal matrix", result.aval, {}
        elif len(shape) > max(rank, 1) and min(shape[-2:]) >= _LEAST_WIDTH and math.prod(shape) >= _FEWEST_ELEMENTS:
            number = call.numbers[given]
            made = self._made_of(number)
            is_dear = ("dot_general" in made and not made & flat.DECOMPOSITIONS) or self._is_jacobian(number)
            is_for_it = all(self._is_inside(i, call) for i in self.program.readers.get(number, ()))
            if is_dear and is_for_it and number not in self.results:
                yield self.makers[number], "diagonal", given.aval, {}

    def _unravelled(self, index: int, eqn: Any) -> Iterator[_Found]:
        """What `jax.jacrev` and `jax.jacfwd` have computed, a product for each place of one axis."""
        aval = eqn.invars[0].aval
        times = aval.shape[eqn.params["axis"]]
        others = math.prod(aval.shape) // max(times, 1)
        is_many = times >= _FEWEST_PRODUCTS and times >= _TIMES_LESS * others
        if is_many and comes_from(eqn, "_src/api.py", "_unravel_array_into_pytree"):
            yield index, "mode", aval, {"times": times, "others": others}

    def _is_jacobian(self, number: int) -> bool:
        maker = self._maker(number)
        return maker is not None and comes_from(maker, "_src/api.py", "jacfun")

    def _is_inside(self, index: int, call: flat.Call) -> bool:
        at: flat.Call | None = self.program.calls[index]
        while at is not None and at is not call:
            at = at.parent
        return at is call

    def _made_of(self, number: int) -> set[str]:
        """The operations that a value is computed by, back to those that are not elementwise."""
        found: set[str] = set()
        known, left = {flat.LITERAL}, [number]
        while left:
            at = left.pop()
            i = self.makers.get(at, -1)
            if at in known or i < 0:
                continue
            known.add(at)
            found.add(self.program.eqns[i].primitive.name)
            if self.program.treatments[i] in flat.ELEMENTWISE:
                left += self.program.reads[i]
        return found

    def _one_hot(self, index: int, eqn: Any) -> Iterator[_Found]:
        """A product with what `jax.nn.one_hot` gives, or with rows of an identity matrix.

        Not with a comparison of the user's own: that is as often meant so, for the matrix units of a TPU.
        """
        for number in () if eqn.params["dimension_numbers"][1][0] else self.program.reads[index]:
            i = self._origin(number)
            gathered = self._origin(self.program.reads[i][0]) if self._names([i]) == {"gather"} else -1
            call = self.program.calls[i].eqn if i >= 0 else None
            is_one_hot = call is not None and call.params.get("name") == "_one_hot"
            aval = self.program.eqns[i].outvars[0].aval if is_one_hot or self._is_identity(gathered) else None
            if aval and math.prod(aval.shape) >= _FEWEST_HOT and aval.shape[-1] >= _FEWEST_CLASSES:
                yield index, "one-hot", aval, {"classes": aval.shape[-1]}

    def _is_identity(self, index: int) -> bool:
        """Whether an equation compares numbers from 0 on with one another, as `jnp.eye` does."""
        sides = self.program.reads[index] if self._names([index]) == {"eq"} else ()
        return bool(sides) and all(self._names([self._origin(it, "add")]) == {"iota"} for it in sides)

    def _origin(self, number: int, *also: str) -> int:
        """The equation that makes what a value is a view of, or is in another type; -1 for none."""
        while (i := self.makers.get(number, -1)) >= 0:
            if self.program.treatments[i] != flat.VIEW and not self._names([i]) & {"convert_element_type", *also}:
                return i
            number = self.program.reads[i][0]
        return -1

    def _full_factors(self, index: int, eqn: Any) -> Iterator[_Found]:
        longer, shorter = sorted(eqn.invars[0].aval.shape[-2:], reverse=True)
        for number, var in zip(self.program.writes[index], eqn.outvars, strict=True):
            is_full = var.aval.shape[-2:] == (longer, longer) and longer >= 4 * shorter
            if is_full and bytes_of(var.aval) >= _FEWEST_STACKED and self._names(self._uses(number)) <= {"slice"}:
                yield index, "factors", var.aval, {"used": shorter}

    def _summed(self, index: int, eqn: Any) -> Iterator[_Found]:
        """A product of matrices that is written as a sum over a product of broadcast arrays."""
        aval, (one, other) = eqn.invars[0].aval, self._spread(self.program.reads[index][0], "mul")
        is_product = bool(one and other) and one != other and not (one | other) & set(eqn.params["axes"])
        if is_product and math.prod(aval.shape) >= _MUCH_WORK:
            yield index, "sum", aval, {}

    def _spread(self, number: int, name: str) -> list[set[int]]:
        """The axes along which the operands of an addition or a multiplication are repeated."""
        at, found = self.makers.get(number, -1), [set[int](), set[int]()]
        for i, var in enumerate(self.program.eqns[at].invars if self._names([at]) == {name} else ()):
            given, maker = dict(enumerate(var.aval.shape)), self._maker(self.program.reads[at][i])
            if maker is not None and maker.primitive.name == "broadcast_in_dim":
                given = dict(zip(maker.params["broadcast_dimensions"], maker.invars[0].aval.shape, strict=True))
            shape = self.program.eqns[at].outvars[0].aval.shape
            found[i].update(axis for axis, length in enumerate(shape) if given.get(axis, 1) != length)
        return found

    def _drawn(self, index: int, eqn: Any) -> Iterator[_Found]:
        """What `jax.random.categorical` draws from the same logits."""
        aval, spread = eqn.invars[0].aval, self._spread(self.program.reads[index][0], "add")
        times = math.prod(aval.shape[axis] for axis in set[int]().union(*spread) - set(eqn.params["axes"]))
        is_much = times >= _SMALLEST_PART and math.prod(aval.shape) >= _FEWEST_HOT
        if is_much and comes_from(eqn, ("random/core.py", "_src/random.py"), "categorical"):
            yield index, "draws", aval, {"times": times}

    def _shifted(self, index: int, eqn: Any) -> Iterator[_Found]:
        """A carry that each turn makes anew, some places further on."""
        aval, program = eqn.outvars[0].aval, self.program
        if self.turns == 1 or bytes_of(aval) * self.turns < _MUCH_COPIED:
            return
        parts = scan_parts(program.around)
        for number, result in zip(program.inputs[parts.consts :], program.results[: parts.carries], strict=False):
            readers = set(program.readers.get(number, ()))
            moved = readers & {self.makers.get(it, -1) for it in program.reads[index]}
            is_it = self._origin(result, "scatter", "dynamic_update_slice") == index
            if moved and is_it and self._takes_little([*readers - moved], aval):
                yield index, "shift", aval, {"times": self.turns}

    def _takes_little(self, indices: list[int], aval: Any) -> bool:
        """Whether equations take a small part of an array, and do nothing else with it."""
        taken = sum(math.prod(self.program.eqns[i].outvars[0].aval.shape) for i in indices)
        return self._names(indices) <= _TAKES and taken * _SMALLEST_PART <= math.prod(aval.shape)

    def _dropped(self, index: int, eqn: Any) -> Iterator[_Found]:
        """A product of which a few rows are used, maybe after a sum with a bias and the like."""
        aval, work = eqn.outvars[0].aval, flat.multiplications(eqn)
        uses = self._uses(self.program.writes[index][0], math.prod(aval.shape)) if work >= _MUCH_WORK else []
        share = work / sum(map(work_of, self.program.eqns)) if uses and self._takes_little(uses, aval) else 0.0
        if share >= _LEAST_SHARE:
            yield index, "rows", aval, {"multiplications": work, "share": round(share, 3)}

    def _added(self, index: int, eqn: Any) -> Iterator[_Found]:
        """The gradient of what a loop's body indexes: an array of zeros with one part, added in each turn."""
        aval = eqn.outvars[0].aval
        if self.turns < _SMALLEST_PART or self.turns * math.prod(aval.shape) < _MUCH_ADDED:
            return
        for number in self.program.reads[index]:
            i = self.makers.get(number, -1)
            if self._names([i]) & {"dynamic_update_slice", "scatter-add"}:
                onto = self._maker(self.program.reads[i][0])
                if onto is not None and onto.primitive.name == "broadcast_in_dim":
                    yield i, "parts", aval, {"times": self.turns}

    def _sorted(self, index: int, eqn: Any) -> Iterator[_Found]:
        aval = eqn.invars[0].aval
        size, length = math.prod(aval.shape), aval.shape[eqn.params["dimension"]]
        uses = [i for number in self.program.writes[index] for i in self._uses(number)]
        key = self._origin(self.program.reads[index][0])
        operands = self.program.reads[key] if self._names([key]) == {"sort"} else ()
        if size >= _FEWEST_ELEMENTS and len(operands) == 2 and self._names([self._origin(operands[1])]) == {"iota"}:
            yield index, "ranks", aval, {}
        if size < _FEWEST_ELEMENTS or self._names(uses) != {"slice"}:
            return
        used = max(_first_or_last(self.program.eqns[i]) for i in uses) * length // size
        if used * _SMALLEST_PART <= length:
            call = self.program.calls[index].eqn
            is_shuffle = call is not None and call.params.get("name") == "_shuffle"
            yield index, "shuffle" if is_shuffle else "sort", aval, {"length": length, "used": used}

    def _scan(self, index: int, eqn: Any) -> Iterator[_Found]:
        parts, length = scan_parts(eqn), int(eqn.params["length"])
        made = list(zip(self.program.writes[index], eqn.outvars, strict=True))[parts.carries :]
        size = sum(bytes_of(var.aval) for number, var in made if self._takes_one(number, length))
        if size >= _FEWEST_STACKED and length >= _SMALLEST_PART:
            yield index, "stack", size, {"length": length}
        if parts.carries == 0 and parts.xs and length >= _FEWEST_TURNS and _is_small(eqn, length):
            yield index, "map", eqn.outvars[0].aval, {"times": length}

    def _copied(self, index: int, eqn: Any) -> Iterator[_Found]:
        """What `jax.vmap` has made of a `cond`: a branch begins with a select of its argument and a stopped one."""
        size, reads = bytes_of(eqn.outvars[0].aval), self.program.reads
        for number in reads[index][1:] if size * self.turns >= _MUCH_COPIED else ():
            write = self.makers.get(number, -1)
            is_write = write >= 0 and self.program.treatments[write] == flat.IN_PLACE
            begin = self.makers.get(reads[write][0], -1) if is_write else -1
            if begin >= 0 and "stop_gradient" in self._names([self.makers.get(it, -1) for it in reads[begin]]):
                yield index, "copies", eqn.outvars[0].aval, {"times": self.turns}

    def _takes_one(self, number: int, length: int) -> bool:
        uses = self._uses(number)
        shapes = [(self.program.eqns[i].invars[0].aval.shape, self.program.eqns[i].outvars[0].aval.shape) for i in uses]
        is_taken = bool(uses) and self._names(uses) <= {"slice", "dynamic_slice"}
        return is_taken and all(before[0] == length and after[0] == 1 for before, after in shapes)

    def _product(self, index: int, eqn: Any) -> Iterator[_Found]:
        yield from self._one_hot(index, eqn)
        yield from self._dropped(index, eqn)
        for at, number in enumerate(self.program.reads[index]):
            inner, aval = self._maker(number), eqn.invars[at].aval
            if inner is None or math.prod(aval.shape) < _FEWEST_ELEMENTS or self._uses(number) != [index]:
                continue
            ranks = len(aval.shape), len(eqn.invars[1 - at].aval.shape)
            if ranks == (2, 1) and self._is_jacobian(number):
                yield index, "jacobian", aval, {}
            one, other = self._spread(number, "mul")
            if ranks[0] == 2 and one and other and not one & other:
                yield index, "product of all pairs", aval, {}
            orders = _orders(inner, eqn, at) if inner.primitive.name == "dot_general" else None
            if orders is not None and orders[0] >= max(_MUCH_WORK, _TIMES_LESS * orders[1]):
                yield index, "order", aval, {"multiplications": orders[0], "other_order": orders[1]}


def _first_or_last(eqn: Any) -> int:
    """How many elements a slice takes, if they are the first or the last; all where they are others."""
    shape = eqn.invars[0].aval.shape
    ends = zip(eqn.params["start_indices"], eqn.params["limit_indices"], shape, strict=True)
    is_end = all(start == 0 or limit == size for start, limit, size in ends)
    return math.prod(eqn.outvars[0].aval.shape if is_end else shape)


def _is_small(scan: Any, length: int) -> bool:
    """Whether the body of a map has small arrays, and nothing inside that takes long, nor a `cond` that spares it."""
    sizes: list[int] = []
    names: set[str] = set()
    bodies = list(inner_jaxprs(scan))
    while bodies:
        for eqn in bodies.pop().eqns:
            inner, name = list(inner_jaxprs(eqn)), eqn.primitive.name
            names.add(name)
            if inner and (name in flat.INLINED or name == "cond"):
                bodies += inner
            elif inner or eqn.effects or not (name == "dot_general" or flat.TREATMENT.get(name) in _OF_SMALL):
                return False
            sizes += [math.prod(var.aval.shape) for var in (*eqn.invars, *eqn.outvars) if type(var) is not Literal]
    is_spared = names.issuperset(("cond", "dot_general"))
    return bool(sizes) and not is_spared and max(sizes) <= _SMALL_TURN and 4 * sum(sizes) * length <= _MOST_MAPPED


def _orders(inner: Any, outer: Any, at: int) -> tuple[int, int] | None:
    """The multiplications of two products, of which the outer one takes the inner one, and in another order."""
    (contracted, batch), (outer_contracted, outer_batch) = (it.params["dimension_numbers"] for it in (inner, outer))
    left, right, third = (it.aval.shape for it in (*inner.invars, outer.invars[1 - at]))
    is_plain = len(contracted[0]) == len(outer_contracted[0]) == 1 and max(map(len, (left, right, third))) <= 2
    if batch[0] or outer_batch[0] or not is_plain:
        return None
    shared, joined = left[contracted[0][0]], outer.invars[at].aval.shape[outer_contracted[at][0]]
    rows, columns, others = math.prod(left) // shared, math.prod(right) // shared, math.prod(third) // joined
    now = rows * shared * columns + rows * columns * others
    return now, shared * others * (rows + columns)  # whichever of the two the third one meets
