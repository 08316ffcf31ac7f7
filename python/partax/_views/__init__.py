"""What people see: tables as text, on a terminal and in a notebook, and the progress of long work.

In come titles, cells and counts; out come texts, HTML, what rich prints, and a bar on a terminal.
"""
