"""One file per format: `read(source) -> Raw`, in file coordinates. No reader trusts a number in a header before comparing it with the
size of the file, and none opens any other file, except the buffers next to a .gltf."""
