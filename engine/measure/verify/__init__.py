"""Exactness on the toy: claims must hold, and mutants must break them."""
