"""Saving and loading of arrays in safetensors files, which are replaced atomically."""
