"""Libraries whose own transformations partax does in their place: a directory for each."""
