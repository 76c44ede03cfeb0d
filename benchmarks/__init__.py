"""Benchmarks of spark_mq and the generated stores they run on."""
