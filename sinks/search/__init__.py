"""The search index: OpenSearch or Elasticsearch."""
