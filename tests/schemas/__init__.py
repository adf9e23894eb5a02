"""Keys and values decoded by the schemas of registries."""
