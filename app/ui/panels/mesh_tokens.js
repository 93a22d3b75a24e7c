// Tokens of a mesh: what each one writes, in words and as a place. Included before scripts that explain tokens.
const [BLOCKS, OFFSETS] = __AXES__;
const isOffset = (token) => token >= __OFFSET__ && token < __SPECIAL__;
const digitsOf = (number, base) => [Math.floor(number / (base * base)), Math.floor(number / base) % base, number % base];
const blockOf = (token) => digitsOf(token >= __SPECIAL__ ? token - __SPECIAL__ : token, BLOCKS);

function tokenWords(token) {
  if (token === __END__) return "end of the mesh";
  if (isOffset(token)) return `place ${digitsOf(token - __OFFSET__, OFFSETS).join(" ")}`;
  return `${token >= __SPECIAL__ ? "new fan, block" : "block"} ${blockOf(token).join(" ")}`;
}

// Cell [x, y, z] of the vertex that a token completes; of a block's token, its middle; null for the end. block: the latest one before it
function cellOf(token, block) {
  if (token === __END__) return null;
  const offset = isOffset(token) ? digitsOf(token - __OFFSET__, OFFSETS) : [OFFSETS / 2, OFFSETS / 2, OFFSETS / 2];
  return (isOffset(token) ? block : blockOf(token)).map((digit, axis) => digit * OFFSETS + offset[axis]);
}
