"""Java and jars without an installation: what ``cdc sink`` and the local stack start JVMs with."""
