"""Words of a user's own mapping of an index. Executors read them too, so this loads no model of the settings."""

from __future__ import annotations

COLUMNS = "columns"
"""In a property: the columns that a field of the user's own is made of."""
GEO_POINT, KNN = "geo_point", "knn_vector"
