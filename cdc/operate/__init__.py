"""The work of an operator on a pipeline, a file for each command: pure rules, ports, and a run over them.

The ports are given their servers in :mod:`connectors.operate`.
"""
