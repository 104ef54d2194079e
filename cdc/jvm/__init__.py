"""Java and jars without an installation: what ``cdc sink`` and the local stack start JVMs with.

Read in this order: :mod:`~cdc.jvm.java` (the runtime), :mod:`~cdc.jvm.jars` and :mod:`~cdc.jvm.jars` (what is
fetched and how it is checked), :mod:`~cdc.jvm.java` (class data that make Spark start faster).
"""
