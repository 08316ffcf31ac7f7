"""Whether a re-created callable is the same as an earlier one: docs/design/static_keys.md has the rules."""
