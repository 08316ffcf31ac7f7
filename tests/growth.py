"""Memory that many calls leave behind."""

import gc
import resource
import sys
from collections.abc import Callable
from pathlib import Path

CALLS = 8_000


class Witness:
    """Hashed by identity and weakly referable."""


def resident() -> int:
    """Bytes of memory of this process."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * resource.getpagesize()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def grows(run: Callable[[int], object], calls: int) -> tuple[int, int]:
    """Python blocks and resident bytes that ``calls`` calls leave behind."""
    gc.collect()
    blocks, size = sys.getallocatedblocks(), resident()
    for i in range(calls):
        run(i)
    gc.collect()
    return sys.getallocatedblocks() - blocks, resident() - size


def check_steady(run: Callable[[int], object], calls: int = CALLS, warm: int = 500) -> None:
    for i in range(warm):
        run(i)
    # A leak shows in each quarter; growth of threads, caches and free lists ends.
    most = 20 + calls // 80
    quarters: list[tuple[int, int]] = []
    while len(quarters) < 4 or (len(quarters) < 12 and min(quarters)[0] >= most):
        quarters.append(grows(run, calls // 4))
    assert min(quarters)[0] < most, f"{min(quarters)[0]} blocks in {calls // 4} calls, at the least"
    size = 4 * sum(size for _, size in quarters) // len(quarters)
    assert size < 16 * 2**20, f"{size} bytes in {calls} calls"
