"""One folder a command, named as the command; none imports another but where the layer test lists it."""
