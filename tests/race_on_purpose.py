"""Guards the search for races: two threads write to one number, which the search has to find.

``race_on_purpose.py LIBRARY``: LIBRARY is race_on_purpose.cpp, compiled for ThreadSanitizer.
"""

import ctypes
import sys
import threading

add = ctypes.CDLL(sys.argv[1]).add  # runs without the GIL
threads = [threading.Thread(target=add, args=(10_000_000,)) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
