"""What is stored of one program, and how it is written, read and loaded."""

import concurrent.futures  # which imports its threads late
import pickle
from typing import Any, TypedDict

import jax

from partax._jax.programs import loaded
from partax._store.callbacks import Callback
from partax._store.content import Proof
from partax._store.folder import Folder


class Record(TypedDict):
    name: str  # of the function
    seconds: float  # to trace, lower and compile
    result: bytes  # of `results.stored_result`; empty for one array
    donated: bytes  # for each leaf 1 if the program donates it
    outputs: int  # the number of arrays that it returns
    through: tuple[int, ...]  # the leaves that are the last of these, which would be forwarded elsewhere
    devices: tuple[int, ...]  # the numbers of those that it runs on, in their order
    proof: Proof
    callbacks: tuple[bytes, ...]  # of `stored_callbacks`
    program: bytes  # of `serialized`


def read_record(folder: Folder, key: str, *, drops: bool = False) -> Record | None:
    data = folder.read(key, drops=drops)
    try:
        return None if data is None else pickle.loads(data)  # covered by its digest, in a directory of the user's own
    except Exception:  # of another version
        return None


class Loading:
    """A stored program that is read and loaded in a thread. It need not be the right one until it is run."""

    def __init__(self, folder: Folder, name: str, devices: tuple[Any, ...]) -> None:
        self.name = name
        self.size = 0  # of the program, in bytes, once it is loaded
        self.callbacks: list[Callback] = []
        pool = concurrent.futures.ThreadPoolExecutor(1, "partax load")
        self.record = pool.submit(read_record, folder, name, drops=True)
        # It takes and returns its arrays in trees of its own. Its `result()` raises whatever the loader does.
        self.program = pool.submit(self._load, devices)
        pool.shutdown(wait=False)

    def _load(self, devices: tuple[Any, ...]) -> Any:
        record = self.record.result()
        if record is None:
            return None
        data, record["program"] = record["program"], b""
        self.size = len(data)
        in_tree = jax.tree.structure(((0,) * len(record["donated"]), {}))
        out_tree = jax.tree.structure([0] * record["outputs"])
        by_number = {device.id: device for device in (*jax.devices(devices[0].platform), *devices)}
        self.callbacks = [Callback(function) for function in record["callbacks"]]
        return loaded(data, in_tree, out_tree, [by_number[number] for number in record["devices"]], self.callbacks)
