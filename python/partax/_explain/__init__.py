"""The causes, costs and contents of traces: `explain`, reports, limits, and how people see them.

In come the beginning and the end of every trace; out come explanations and tables.
"""
