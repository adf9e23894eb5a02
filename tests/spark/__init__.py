"""On Spark: tests/jobs test a job without it; here it runs in Spark's tasks."""
