// A draft tree as boxes, each below its predecessor and as wide as its leaves. Included before the scripts that draw trees.
// Returns boxes depth first: node, parent, x, y, wide, high, depth (1 = after the prefix), order among its siblings, their number.
function boxesOf(parents, { left, top, width, height, tallest, widest, above }) { // tallest, widest : a leaf; above : rows left free
  const nodes = Array.from(parents, (parent) => ({ parent, children: [], leaves: 0, depth: 0 })), roots = [];
  nodes.forEach((node, i) => {
    node.depth = node.parent < 0 ? 1 : nodes[node.parent].depth + 1;
    (node.parent < 0 ? roots : nodes[node.parent].children).push(i);
  });
  for (const node of [...nodes].reverse()) {
    node.leaves = node.leaves || 1;
    if (node.parent >= 0) nodes[node.parent].leaves += node.leaves;
  }
  const levels = Math.max(0, ...nodes.map(({ depth }) => depth)), high = Math.min(tallest, height / (levels + above));
  const leaves = roots.reduce((sum, i) => sum + nodes[i].leaves, 0), boxes = [];
  const place = (siblings, from) => siblings.forEach((i, order) => {
    const { depth, parent, children, leaves: own } = nodes[i], wide = own * Math.min(width / leaves, widest);
    boxes.push({ node: i, parent, x: from, y: top + (depth - 1 + above) * high, wide, high, depth, order, siblings: siblings.length });
    place(children, from);
    from += wide;
  });
  place(roots, left);
  return { boxes, levels, high };
}

// Draws a node's token in its box: its patch, else the longest of the texts that fits.
function drawNode(pen, box, patch, texts, colour) {
  const side = Math.floor(Math.min(box.high - 6, box.wide - 3, 40));
  if (patches.image && patch !== undefined) {
    if (side >= 5) drawPatch(pen, patch, box.x + (box.wide - side) / 2 - 0.75, box.y + (box.high - 2 - side) / 2, side);
    return;
  }
  const text = texts.find((each) => pen.measureText(each).width + 6 < box.wide);
  if (text && box.high >= 13) write(pen, text, box.x + box.wide / 2, box.y + box.high / 2 - 0.5, colour, "center");
}

// The box under the pointer.
function boxAt(boxes, canvas, event) {
  const frame = canvas.getBoundingClientRect(), x = event.clientX - frame.left, y = event.clientY - frame.top;
  return boxes.find((b) => x >= b.x && x < b.x + b.wide && y >= b.y && y < b.y + b.high);
}
