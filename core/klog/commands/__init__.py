"""One folder a command, named as the command; none imports another, except the edges in the layer test."""
