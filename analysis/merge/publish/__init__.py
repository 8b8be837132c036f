"""The last stage of a merge: names, statistics and tables written, the database put in place."""
