"""``cdc up``: a whole pipeline in one foreground command.

:mod:`~cdc.up.parts` says what runs and what has to be agreed to (pure). :mod:`~cdc.up.children` starts commands of
which none outlives us. :mod:`~cdc.up.together` starts them in order, looks after them and ends them in order.
"""
