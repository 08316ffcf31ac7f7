"""Programs that outlive their process: stored where they are compiled, and loaded by the next one.

In come a call and the target that would be traced for it; out comes the program of an equal call of an earlier process.
"""


class UnstoredError(Exception):
    """Why a call has no program that could be stored."""
