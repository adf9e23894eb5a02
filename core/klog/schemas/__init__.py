"""Schemas of registries, as their topics have them on disk, and keys and values decoded by them."""
