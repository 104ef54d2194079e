"""How far everything is: ``cdc status``."""
