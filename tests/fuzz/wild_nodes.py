"""A registered node whose functions break the rules, and predicates that do."""

import gc
from collections.abc import Callable
from typing import Any

import jax

from fuzz.source import Broke
from fuzz.values import World
from partax import _core


class Wild:
    """`how` it flattens, and how it is `made` again."""

    def __init__(self, world: World, items: list[Any], how: int, made: int, aux: Any) -> None:
        self.world, self.items, self.how, self.made, self.aux = world, items, how % 16, made % 6, aux
        self.asked = 0


def _flatten(node: Wild) -> Any:
    node.asked += 1
    aux = (node.world, node.made, node.aux)
    match node.how:
        case 0:
            raise Broke
        case 1:
            return node.items, aux, None
        case 2:
            return None
        case 3:
            return (item for item in node.items), aux
        case 4:
            return [*node.items, node] if node.asked % 200 else node.items, aux
        case 5 | 6 | 7:
            node.world.disturb(node.how - 5)
        case 8:
            return node.items * (node.asked % 3), aux
        case 9:
            return node.items, node.items
        case 10:
            node.items.clear()
            gc.collect(0)
        case 11:
            return node.items, node.aux
        case 12:
            if node.asked < 5:
                _core.flatten(node.world.root)
        case 13:
            return {"a": 1}, aux
        case 14:
            raise GeneratorExit
    return node.items, aux


def _unflatten(aux: Any, children: Any) -> Any:
    match aux[1] if isinstance(aux, tuple) and len(aux) == 3 else 0:
        case 1:
            raise Broke
        case 2:
            return None
        case 3:
            return [*children, *children]
        case 4:
            aux[0].disturb(0)
        case 5:
            return _core.flatten(aux[0].root)
    return list(children)


jax.tree_util.register_pytree_node(Wild, _flatten, _unflatten)


def wild_predicate(world: World, how: int) -> Callable[[Any], Any]:
    """A filter that raises, changes the tree, or gives no answer."""

    def predicate(leaf: Any) -> Any:
        match how % 6:
            case 0:
                raise Broke
            case 1 | 2 | 3:
                world.disturb(how % 6 - 1)
            case 4:
                return [leaf]
            case 5:
                world.disturb(4)
                return None
        return how % 12 < 6

    return predicate
