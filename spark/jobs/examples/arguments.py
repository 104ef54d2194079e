"""Shared by the examples: their arguments, and the session."""

from __future__ import annotations

from argparse import ArgumentParser

from pyspark.sql import SparkSession

from pyspark_headrace import register


def parser(what: str) -> ArgumentParser:
    """The arguments of every example."""
    made = ArgumentParser(description=what)
    made.add_argument("--config", required=True, help="the pipeline's settings file")
    made.add_argument("--table", required=True, help="schema.table")
    return made


def open_session(name: str) -> SparkSession:
    """The session of spark-submit, or one of its own, that knows the format."""
    session = SparkSession.builder.appName(name).getOrCreate()
    register(session)
    return session
