"""One file per format: `read(source) -> Raw`, in file coordinates. Readers compare every number in a header with the size of the
file before using it, and open no other file except the buffers next to a .gltf."""
