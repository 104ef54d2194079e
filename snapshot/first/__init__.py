"""The first snapshot: slot and rows meet at one LSN. Workers read chunks from one cut, before capture streams."""
