"""Rules broken on purpose: each is a change of the source that a test has to notice. A file per room of the product."""

from __future__ import annotations

from pathlib import Path

from tests.faults.mutants import (
    cdc,
    debezium,
    events,
    kafka,
    masks,
    postgres,
    readers,
    session,
    sink_claims,
    sinks,
    snapshot,
    spark,
    status,
    view_claims,
    views,
    wire,
)
from tests.faults.mutants.mutant import Mutant

__all__ = ["MUTANTS", "ROOT", "Mutant"]

ROOT = Path(__file__).parents[3]

MUTANTS: tuple[Mutant, ...] = (
    *cdc.MUTANTS,
    *readers.MUTANTS,
    *status.MUTANTS,
    *wire.MUTANTS,
    *session.MUTANTS,
    *postgres.MUTANTS,
    *kafka.MUTANTS,
    *masks.MUTANTS,
    *debezium.MUTANTS,
    *events.MUTANTS,
    *snapshot.MUTANTS,
    *sink_claims.MUTANTS,
    *sinks.MUTANTS,
    *spark.MUTANTS,
    *views.MUTANTS,
    *view_claims.MUTANTS,
)
