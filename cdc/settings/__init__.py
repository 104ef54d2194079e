"""The settings file as typed models, and where its secrets are read."""
