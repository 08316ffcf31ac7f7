"""What was traced and why, what it cost and what it holds: `explain`, reports, limits, and how people see them.

In come the beginning and the end of every trace; out come explanations and tables.
"""
