"""Job descriptions of other systems, read as they are: every key becomes something, or is said to become nothing."""
