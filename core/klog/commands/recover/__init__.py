"""Plans repairs: rebuild what can be rebuilt, repeat what a broker would do, or keep everything intact."""
