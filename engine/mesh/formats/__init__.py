"""One file a format: `read(source) -> Raw`, in file coordinates. None of them trusts a number in a header before it was compared
with the size of the file, and none opens another file than the one it was given, except the buffers a .gltf keeps beside it."""
