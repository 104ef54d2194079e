"""Views: documents and figures over several tables, kept true from the log. README.md is the manual."""
