"""The results of `partax.report` and `partax.doctor`."""

from partax._doctor.finding import Diagnosis, Finding
from partax._doctor.trace_profile import TraceCost, TraceProfile
from partax._explain.results import FunctionReport, LoadReport, Report, TraceReport

__all__ = ["Diagnosis", "Finding", "FunctionReport", "LoadReport", "Report", "TraceCost", "TraceProfile", "TraceReport"]
