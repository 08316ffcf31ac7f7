"""Arrays in files: in come trees, out come safetensors files, and trees of them; files that are replaced at once."""
