"""The bytes of a replication session: frames, messages of pgoutput, and fields that no record could carry. No I/O."""
