"""The doctor: reads a traced program and says why it is slow to compile, traces again or needs much memory, by line."""
