"""The figures of running processes: declared once, worked out, and shown over HTTP."""
