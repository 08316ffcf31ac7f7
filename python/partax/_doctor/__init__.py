"""The doctor: reads a traced program and says why it is slow to compile, traces again or needs much memory, by line.

In: any function and its arguments. Out: a `Diagnosis`: findings, each with a line of the user's, figures and advice.
"""
