"""The cache: Redis or Valkey."""
