"""All programs from public threads."""

from __future__ import annotations

import threads_to_compile
import threads_to_run
from thread_program import PROGRAMS, ThreadProgram

__all__ = ["PROGRAMS", "ThreadProgram", "threads_to_compile", "threads_to_run"]
