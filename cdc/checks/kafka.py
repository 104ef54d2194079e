"""The checks of the log: pure, from :class:`LogFacts` to findings."""

from __future__ import annotations

from collections.abc import Iterator

from cdc.checks.facts import LogFacts, TopicRights
from cdc.checks.finding import Finding, fail, ok, warn
from cdc.errors import Exit

PART = "kafka"


def check_log(facts: LogFacts, *, initialised: bool, maker: str = "cdc init") -> Iterator[Finding]:
    """Every finding about Kafka. ``initialised``: the topics were made. ``maker``: the
    command that makes them."""
    yield ok(PART, "reachable", f"the Kafka cluster {facts.cluster_id} answers")
    if facts.unused:
        names = ", ".join(facts.unused)
        yield ok(PART, "options", f"no client gets these options of [log.client], which have no meaning here: {names}")
    yield from check_topics(facts, initialised=initialised, maker=maker)
    if facts.rights is not None:
        yield check_rights(facts.rights)


def check_rights(rights: TopicRights) -> Finding:
    """Check which principals may write requests: a writer to the state topic can have tables read
    again."""
    if rights.checked is None:
        message = f"who may write to {rights.topic} was not told: this login may not ask for ACLs"
        return ok(PART, "rights", message)
    if not rights.checked:
        message = f"the brokers check no rights: whoever reaches them may write to {rights.topic}"
        fix = "set authorizer.class.name on the brokers; SECURITY.md lists the rights that each part needs"
        return warn(PART, "rights", message, fix)
    everybody = [writer for writer in rights.writers if writer.endswith(":*")]
    if everybody:
        message = f"everybody who logs in to Kafka may write to {rights.topic}"
        return warn(PART, "rights", message, "give the right to capture's and the operators' principals alone")
    named = ", ".join(rights.writers) or "super users alone"
    return ok(PART, "rights", f"may write to {rights.topic}: {named}")


def check_topics(facts: LogFacts, *, initialised: bool, maker: str) -> Iterator[Finding]:
    """Policy, partitions, retention, size and identity of each topic."""
    for message, fix, fatal in facts.faults:
        if fatal:
            yield fail(PART, "topic", message, fix, exit=Exit.TOPIC)
        else:
            yield warn(PART, "topic", message, fix)
    if facts.missing and initialised:
        message = f"topics are missing: {', '.join(facts.missing)}"
        yield fail(PART, "topic", message, f"{maker} makes the topics of tables that were added", exit=Exit.TOPIC)
    elif facts.missing:
        yield ok(PART, "topic", f"{len(facts.missing)} topics will be made by {maker}")
    if facts.present and not facts.faults:
        yield ok(PART, "topic", f"{len(facts.present)} topics are as they have to be")
