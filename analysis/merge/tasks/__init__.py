"""The tasks of a merge: in processes of this machine, by MPI or by Dask."""
