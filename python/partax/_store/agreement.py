"""Has all processes of `jax.distributed` load a program, or all of them trace it.

Otherwise some would run a program, and wait in its collectives for those that still compile it.
"""

import threading
from collections import Counter

import jax

from partax._jax.private import shared_values

_LONGEST_WAIT = 60  # seconds, for the slowest process

_lock = threading.Lock()
_counts: Counter[str] = Counter()  # of agreements, by the function and the arrays of the call


def all_have_loaded(name: str, has_loaded: bool) -> bool:
    """Whether each process has loaded the program of equal code and arguments, of which this one's has this name. Each
    has a name of its own, as the environment is a part of it.
    """
    call, _, content = name.split("-")
    with _lock:
        _counts[call] += 1
        topic = f"partax/{call}/{_counts[call]}"
    values, rank = shared_values(), jax.process_index()
    values.key_value_set(f"{topic}/{rank}", content if has_loaded else "none")
    if rank == 0:
        answers = {content if has_loaded else "none"}
        try:
            for other in range(1, jax.process_count()):
                answers.add(values.blocking_key_value_get(f"{topic}/{other}", _LONGEST_WAIT * 1000))
        except jax.errors.JaxRuntimeError:  # it is late, or has ended
            answers.add("none")
        values.key_value_set(topic, "load" if answers == {content} else "trace")
    try:
        return values.blocking_key_value_get(topic, 2 * _LONGEST_WAIT * 1000) == "load"
    except jax.errors.JaxRuntimeError:
        return False
