"""The commands: a module each, with its options and its call."""
