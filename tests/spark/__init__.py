"""On Spark: what a job does is told without it, in tests/jobs; here is whether it does so in Spark's tasks."""
