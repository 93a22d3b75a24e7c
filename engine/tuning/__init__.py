"""Measurements of this machine, kept in the user's data folder, and the choices that follow: threads, dtype, the method of `auto`."""
