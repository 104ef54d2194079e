"""Changes as a DataFrame: ``spark.read.format("headrace")`` and ``spark.readStream.format("headrace")``.

Reading order: ``options.py`` (what a user asks for), ``frame_columns.py`` (the one schema of a frame), ``plan.py``
(ranges and tasks), ``as_of.py`` (when the past can be had), ``typed_rows.py`` and ``raw_rows.py`` (records to Arrow),
``frame.py`` (all of it over the ports), ``data_source.py`` (PySpark's side). All but the last do no I/O. ``ports.py``
is how they ask the log.
"""
