"""Changes as a DataFrame: ``spark.read.format("headrace")`` and ``spark.readStream.format("headrace")``."""
