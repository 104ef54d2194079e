"""The story of ``cdc demo``: a shop, its followers, twenty seconds of life, and the proof.

Read in this order: ``shop.sql`` and :mod:`~cdc.demo.shop` (the database and its life),
:mod:`~cdc.cli.pipeline_processes` (the commands it runs, none of which outlives it), ``views.sql`` and
:mod:`~cdc.demo.shop_views` (its documents), :mod:`~cdc.demo.story`.
"""
