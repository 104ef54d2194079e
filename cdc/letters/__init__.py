"""An operator's work on dead letters: read them, order a retry or a drop, and see what the stores show.

``rules`` is pure, ``ports`` says what is asked of the world, and ``run`` gives the orders. The letters themselves are
:mod:`cdc.dead`, and who carries an order out is :mod:`cdc.orders`.
"""
