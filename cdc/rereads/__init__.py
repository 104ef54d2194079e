"""Tables to be read again while the stream runs: asked for, followed, paused (``cdc snapshot TABLE``).

``rules`` are pure, ``run`` works over ports. The capture carries requests out: :mod:`snapshot.later.request_scheduler`.
"""
