"""Has all processes of `jax.distributed` load a program, or all of them trace it.

Otherwise some would run a program, and wait in its collectives for those that still compile it.
"""

import itertools

import jax

from partax._jax.private import shared_values

_LONGEST_WAIT = 60  # seconds, for the slowest process

_numbers: "dict[str, itertools.count[int]]" = {}  # of the next agreement, by the function and arrays of the call


def all_have_loaded(name: str, has_loaded: bool) -> bool:
    """Whether each process has loaded the program of equal code and arguments. `name` is that of this process's own
    program: the environment is a part of it, and so it differs between processes.
    """
    call, _, content = name.split("-")
    topic = f"partax/{call}/{next(_numbers.setdefault(call, itertools.count()))}"
    values, rank, answer = shared_values(), jax.process_index(), content if has_loaded else "none"
    try:
        values.key_value_set(f"{topic}/{rank}", answer)
        if rank == 0:
            answers = {answer}
            try:
                for other in range(1, jax.process_count()):
                    answers.add(values.blocking_key_value_get(f"{topic}/{other}", _LONGEST_WAIT * 1000))
            except jax.errors.JaxRuntimeError:  # it is late, or has ended
                answers.add("none")
            values.key_value_set(topic, "load" if answers == {content} else "trace")
        return values.blocking_key_value_get(topic, 2 * _LONGEST_WAIT * 1000) == "load"
    except jax.errors.JaxRuntimeError:  # the first process has ended
        return False
