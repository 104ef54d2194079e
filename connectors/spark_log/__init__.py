"""The log as Spark asks about it: for sinks and for DataFrames."""
