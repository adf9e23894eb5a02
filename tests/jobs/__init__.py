"""Jobs as plain functions: no Spark is needed to know what they do."""
