"""A finished run: its folder, its files, what is read back from them."""
