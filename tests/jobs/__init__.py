"""Jobs as plain functions: no Spark is needed to test them."""
