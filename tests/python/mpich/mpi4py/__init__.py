"""Stands in for an mpi4py that was built with MPICH, which Debian has not: what rill needs of it,
in MPI.py."""
