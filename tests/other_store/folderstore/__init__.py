"""A store of JSON files in folders: a package apart from Headrace, and the example of ``sinks/README.md``."""
