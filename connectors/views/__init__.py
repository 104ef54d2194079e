"""Views between the log and their topics: what is read, kept, published, shown and built anew."""
