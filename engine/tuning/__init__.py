"""What is measured of this machine, kept in the user's data folder, and what is chosen by it: threads, dtype, and the method of `auto`."""
