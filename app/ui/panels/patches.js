// Patches of tokens, in one picture. Included before the scripts of charts that draw them.
const [IN_ROW, SIDE] = __SHEET__;
const patches = { address: "", image: null };

async function decodePatches(address, redraw) {
  if (address === patches.address) return;
  Object.assign(patches, { address, image: null });
  const image = address && (await bitmapOf(address));
  if (!image || patches.address !== address) return;
  patches.image = image;
  redraw();
}

function drawPatch(pen, index, x, y, side) {
  const soft = pen.imageSmoothingEnabled;
  pen.imageSmoothingEnabled = false;
  pen.drawImage(patches.image, (index % IN_ROW) * SIDE, Math.floor(index / IN_ROW) * SIDE, SIDE, SIDE, x, y, side, side);
  pen.imageSmoothingEnabled = soft;
}
