"""What is stored of one program, and how it is read and loaded in a thread of its own while the call goes on."""

import concurrent.futures  # which imports its threads once they are asked for
import pickle
from typing import Any, TypedDict

import jax

from partax._jax.programs import loaded
from partax._store.folder import Folder
from partax._store.key import Proof


class Record(TypedDict):
    name: str  # of the function
    seconds: float  # how long it took to trace, lower and compile
    result: bytes  # of `results.stored_result_of`
    donated: bytes  # for each leaf 1 where the program donates it
    outputs: int  # how many arrays it returns
    through: tuple[int, ...]  # the leaves that are the last of these, as they would be forwarded elsewhere
    devices: tuple[int, ...]  # the numbers of those that it runs on, in their order
    proof: Proof  # what it depends on
    program: bytes  # of `serialized`


def record_of(folder: Folder, name: str, *, drops: bool = False) -> Record | None:
    data = folder.read(name, drops=drops)
    try:
        return None if data is None else pickle.loads(data)  # covered by its digest, in a folder of the user's own
    except Exception:  # of another version
        return None


class Loading:
    """A stored program that is read and loaded. It need not be the right one until it is run."""

    def __init__(self, folder: Folder, name: str, devices: tuple[Any, ...]) -> None:
        self.name = name  # what it is stored by
        pool = concurrent.futures.ThreadPoolExecutor(1, "partax load")
        self.record = pool.submit(record_of, folder, name, drops=True)
        # It takes and returns its arrays in trees of its own. Its `result()` raises whatever the loader does.
        self.program = pool.submit(self._load, devices)
        pool.shutdown(wait=False)

    def _load(self, devices: tuple[Any, ...]) -> Any:
        record = self.record.result()
        if record is None:
            return None
        in_tree = jax.tree.structure(((0,) * len(record["donated"]), {}))
        out_tree = jax.tree.structure([0] * record["outputs"])
        # Those with the numbers of the record, of the kind of those that a call's arrays are on.
        by_number = {device.id: device for device in (*jax.devices(devices[0].platform), *devices)}
        return loaded(record["program"], in_tree, out_tree, [by_number[number] for number in record["devices"]])
