"""Several steps of a compiled function in one call."""
