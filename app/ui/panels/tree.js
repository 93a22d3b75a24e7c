// The newest draft tree and the shapes of all trees. Draws the value that app/ui/panels/tree.py encodes.
__CHART__
const ACCEPTED = css(__ACCEPTED__);
const card = element.querySelector(".ft-chart"), output = card.querySelector("output");
const [last, shapes] = ["last", "shapes"].map((name) => card.querySelector(`[data-chart=${name}]`));
const [icicle, courses] = [last, shapes].map((figure) => figure.querySelector("canvas"));
let boxes = []; // of the icicle, one per node: left, top, width, height, and its description

// The depth, the children and the number of leaves below every node; a leaf counts itself.
function measured(parents) {
  const nodes = Array.from(parents, (parent) => ({ parent, children: [], leaves: 0, depth: 0 }));
  nodes.forEach((node, i) => {
    node.depth = node.parent < 0 ? 1 : nodes[node.parent].depth + 1;
    if (node.parent >= 0) nodes[node.parent].children.push(i);
  });
  for (const node of [...nodes].reverse()) {
    node.leaves = node.leaves || 1;
    if (node.parent >= 0) nodes[node.parent].leaves += node.leaves;
  }
  return nodes;
}

function drawIcicle() {
  const v = props.value, page = sheet(icicle), { pen, width, height } = page;
  boxes = [];
  if (!width) return;
  const tokens = numbers(v.tokens, Int32Array), nodes = measured(numbers(v.parents, Int32Array)), path = new Set(v.path);
  const levels = nodes.reduce((deepest, node) => Math.max(deepest, node.depth), 0), row = Math.min(44, height / (levels + 1));
  const roots = [...nodes.keys()].filter((i) => nodes[i].parent < 0), leaves = roots.reduce((sum, i) => sum + nodes[i].leaves, 0);
  pen.fillStyle = page.raised;
  pen.fillRect(0, 0, width, row - 2);
  write(pen, v.behind ? `after token ${v.behind}` : "after the prompt", 8, row / 2, page.muted);
  const place = (siblings, from) => siblings.forEach((i, turn) => {
    const node = nodes[i], wide = (node.leaves / leaves) * width, taken = path.has(i);
    const box = { x: from, y: node.depth * row, wide, high: row };
    box.said = `token ${tokens[i]} · depth ${node.depth} · candidate ${turn + 1} of ${siblings.length} · ${taken ? "accepted" : "not accepted"}`;
    boxes.push(box);
    pen.fillStyle = taken ? ACCEPTED : page.raised;
    pen.fillRect(box.x, box.y, Math.max(1, wide - 1.5), row - 2);
    if (taken) {
      pen.strokeStyle = page.text;
      pen.lineWidth = 1.5;
      pen.strokeRect(box.x + 0.75, box.y + 0.75, Math.max(1, wide - 3), row - 3.5);
    }
    const text = String(tokens[i]);
    if (row >= 13 && pen.measureText(text).width + 6 < wide) {
      write(pen, text, box.x + wide / 2, box.y + row / 2 - 0.5, taken ? "#fff" : page.muted, "center");
    }
    place(node.children, from);
    from += wide;
  });
  place(roots, 0);
  last.querySelector("figcaption").textContent = `Newest tree: ${nodes.length} tokens on ${levels} levels, ${v.path.length} accepted`;
  icicle.setAttribute("aria-label", last.querySelector("figcaption").textContent);
}

function drawShapes() {
  const v = props.value, page = sheet(courses), { pen, width, height } = page;
  if (!width) return;
  const [depth, wide, accepted] = [v.depth, v.width, v.accepted].map((text) => numbers(text, Int32Array));
  const most = Math.max(4, ...depth, ...wide), count = Math.max(12, depth.length);
  const left = 24, top = 10, bottom = height - 10, cell = (width - left - 8) / count;
  const heightOf = (value) => bottom - (value / most) * (bottom - top);
  for (const tick of [0, Math.round(most / 2), most]) {
    trail(pen, [[left, heightOf(tick)], [width - 8, heightOf(tick)]], page.line, { width: 1 });
    write(pen, String(tick), left - 6, heightOf(tick), page.muted, "right");
  }
  pen.fillStyle = ACCEPTED;
  accepted.forEach((a, i) => pen.fillRect(left + i * cell, heightOf(a), Math.max(1, cell - 1), bottom - heightOf(a)));
  const stairs = (values) => Array.from(values).flatMap((value, i) => [[left + i * cell, heightOf(value)], [left + (i + 1) * cell, heightOf(value)]]);
  trail(pen, stairs(wide), page.muted, { dash: [4, 3], width: 1.5 });
  trail(pen, stairs(depth), page.fast, { width: 1.75 });
  const [d, w] = [depth.at(-1), wide.at(-1)];
  shapes.querySelector("figcaption").replaceChildren(
    `${depth.length} trees: `, swatch(page.fast, `depth, now ${d}`, "stroke"), swatch(page.muted, `width, now ${w}`, "stroke dashed"),
    swatch(ACCEPTED, "levels accepted"),
  );
  courses.setAttribute("aria-label", `${depth.length} trees; the newest has depth ${d} and width ${w}`);
}

function redraw() {
  if (props.value.state === "empty") return;
  drawIcicle();
  drawShapes();
}

function draw() {
  const v = props.value;
  if (!v) return;
  card.dataset.state = v.state;
  card.dataset.trees = v.depth ? numbers(v.depth, Int32Array).length : 0;
  card.querySelector(".ft-about-chart").textContent = v.about;
  output.textContent = "";
  redraw();
}

icicle.addEventListener("pointermove", (event) => {
  const frame = icicle.getBoundingClientRect(), x = event.clientX - frame.left, y = event.clientY - frame.top;
  const box = boxes.find((b) => x >= b.x && x < b.x + b.wide && y >= b.y && y < b.y + b.high);
  output.textContent = box ? box.said : "";
});
icicle.addEventListener("pointerleave", () => { output.textContent = ""; });
follow([icicle, courses], redraw);
watch("value", draw);
draw();
