"""Ways to a plan that repairs: rebuild what can be rebuilt, do what a broker would, keep what is intact."""
