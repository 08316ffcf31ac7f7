"""The causes, costs and contents of traces: `explain`, reports, limits, and how people see them."""
