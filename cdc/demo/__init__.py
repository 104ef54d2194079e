"""The story of ``cdc demo``: a shop, its followers, twenty seconds of life, and the proof."""
