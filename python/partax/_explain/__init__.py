"""Why something was traced again, what it cost, what it holds.

In come the beginning and the end of every trace; out come explanations, reports and limits.
"""
