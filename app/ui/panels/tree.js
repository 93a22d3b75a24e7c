// The latest draft tree and the shapes of all trees. Draws values from app/ui/panels/tree.py.
const ACCEPTED = css(__ACCEPTED__);
const card = element.querySelector(".ft-chart"), output = card.querySelector("output");
const [last, shapes] = ["last", "shapes"].map((name) => card.querySelector(`[data-chart=${name}]`));
const [icicle, courses] = [last, shapes].map((figure) => figure.querySelector("canvas"));
let boxes = []; // of the icicle chart, one per node, see icicle.js, with a description
let at = null; // node under the pointer, in the order of the boxes
let turn = null; // tree under the pointer
let announceIcicle = () => {}, announceShapes = () => {};

function drawIcicle(page, pointed = at) {
  const v = props.value, { pen, width, height } = page, left = 46, top = 30;
  if (!width) return [];
  const tokens = numbers(v.tokens, Int32Array), chance = numbers(v.p, Float32Array), path = new Set(v.path);
  const { boxes: made, levels, high } = boxesOf(numbers(v.parents, Int32Array), { left, top, width: width - left, height: height - top, tallest: 52, widest: Infinity, above: 1 });
  write(pen, "Depth (tokens ahead)", 0, 8, page.text);
  for (let level = 1; level <= levels; level += 1) write(pen, String(level), left - 10, top + (level + 0.5) * high - 1, page.muted, "right");
  pen.fillStyle = page.raised;
  pen.fillRect(left, top, width - left, high - 2);
  write(pen, v.behind ? `after token ${v.behind}` : "after the prompt", left + 8, top + high / 2, page.muted);
  made.forEach((box, i) => {
    const { node, wide, depth, order, siblings } = box, taken = path.has(node);
    const named = v.words[node] || `token ${tokens[node]}`, likely = Number.isNaN(chance[node]) ? "" : ` · p ${chance[node].toFixed(2)}`;
    box.description = `${named}${likely} · depth ${depth} · candidate ${order + 1} of ${siblings} · ${taken ? "accepted" : "not accepted"}`;
    pen.fillStyle = taken ? ACCEPTED : page.raised;
    pen.fillRect(box.x, box.y, Math.max(1, wide - 1.5), high - 2);
    drawNode(pen, box, v.sheet ? node : undefined, [v.words[node], v.words[node]?.split(" ").at(-1), String(tokens[node])].filter(Boolean), taken ? "#fff" : page.muted);
    if (!taken && i !== pointed) return;
    pen.strokeStyle = i === pointed ? page.accent : page.text;
    pen.lineWidth = i === pointed ? 2.5 : 1.5;
    pen.strokeRect(box.x + 0.75, box.y + 0.75, Math.max(1, wide - 3), high - 3.5);
  });
  return made;
}

const trees = () => ["depth", "width", "accepted"].map((name) => numbers(props.value[name], Int32Array));
const sayTree = (i) => { const [depth, wide, accepted] = trees(); return `tree ${i + 1}: depth ${depth[i]}, width ${wide[i]}, ${accepted[i]} levels accepted`; };

function drawShapes(page, pointed = turn) {
  const { pen, width, height } = page;
  if (!width) return;
  const [depth, wide, accepted] = trees(), most = Math.max(4, ...depth, ...wide), count = Math.max(12, depth.length);
  const box = { left: 46, right: width - 8, top: 30, bottom: height - 38 };
  const [across, up] = axes(page, box, { range: [0.5, count + 0.5], title: "Tree, one per pass", text: String },
    { range: [0, most], title: "Levels; children of a node", ticks: [0, Math.round(most / 2), most] });
  const cell = (box.right - box.left) / count;
  accepted.forEach((a, i) => {
    pen.fillStyle = ACCEPTED;
    pen.globalAlpha = pointed === null || pointed === i ? 1 : 0.45;
    pen.fillRect(across(i + 1) - cell / 2, up(a), Math.max(1, cell - 1), box.bottom - up(a));
  });
  pen.globalAlpha = 1;
  const stairs = (values) => Array.from(values).flatMap((value, i) => [[across(i + 1) - cell / 2, up(value)], [across(i + 1) + cell / 2, up(value)]]);
  trail(pen, stairs(wide), page.muted, { dash: [4, 3], width: 1.5 });
  trail(pen, stairs(depth), page.fast, { width: 1.75 });
}

function captions() {
  const v = props.value, [depth, wide] = trees(), page = getComputedStyle(card);
  last.querySelector("figcaption").textContent = `Latest tree: ${numbers(v.tokens, Int32Array).length} tokens on ${Math.max(0, ...boxes.map((b) => b.depth))} levels, ${v.path.length} accepted`;
  shapes.querySelector("figcaption").replaceChildren(
    `${depth.length} trees: `, swatch(page.getPropertyValue("--ft-fast"), `depth, now ${depth.at(-1)}`, "stroke"),
    swatch(page.getPropertyValue("--ft-muted"), `width, now ${wide.at(-1)}`, "stroke dashed"), swatch(ACCEPTED, "levels accepted"),
  );
}

function redraw() {
  if (props.value.state === "empty") return;
  boxes = drawIcicle(sheet(icicle));
  if (at >= boxes.length) at = null;
  drawShapes(sheet(courses));
  captions();
  if (patches.image) card.dataset.patches = patches.image.height / SIDE;
  output.textContent = at !== null ? boxes[at].description : turn !== null ? sayTree(turn) : "";
  announceIcicle();
  announceShapes();
}

function draw() {
  const v = props.value;
  if (!v) return;
  card.dataset.state = v.state;
  card.dataset.trees = v.depth ? numbers(v.depth, Int32Array).length : 0;
  card.querySelector(".ft-about-chart").textContent = v.about;
  at = turn = null;
  output.textContent = "";
  decodePatches(v.sheet || "", redraw);
  redraw();
}

const go = (to) => { at = to; turn = null; redraw(); };
const goTree = (to) => { turn = to; at = null; redraw(); };
icicle.addEventListener("pointermove", (event) => {
  const found = boxes.indexOf(boxAt(boxes, icicle, event));
  go(found < 0 ? null : found);
});
icicle.addEventListener("pointerleave", () => go(null));
courses.addEventListener("pointermove", (event) => {
  const frame = courses.getBoundingClientRect(), count = Math.max(12, trees()[0].length);
  const i = Math.floor(((event.clientX - frame.left - 46) / (frame.width - 54)) * count);
  goTree(i >= 0 && i < trees()[0].length ? i : null);
});
courses.addEventListener("pointerleave", () => goTree(null));
const treeName = () => (props.value.state === "empty" ? "No tree yet" : last.querySelector("figcaption").textContent || "Latest tree");
const shapesName = () => (props.value.state === "empty" ? "No trees yet" : `${trees()[0].length} trees`);
announceIcicle = readable(icicle, treeName, { count: () => boxes.length, at: () => at, go, say: (i) => boxes[i].description });
announceShapes = readable(courses, shapesName, { count: () => (props.value.depth ? trees()[0].length : 0), at: () => turn, go: goTree, say: sayTree });
exports(card.querySelector("header"), () => {
  const v = props.value, [depth, wide, accepted] = trees();
  return {
    name: "trees", title: `Draft trees: ${v.title}`, made: v.made,
    figures: [
      { title: last.querySelector("figcaption").textContent, width: 760, height: 340, draw: (page) => drawIcicle(page, null) },
      { title: "Depth (line), width (dashed) and accepted levels (bars) of every tree", width: 760, height: 300, draw: (page) => drawShapes(page, null) },
    ],
    rows: [["tree", "depth", "width", "levels_accepted"], ...Array.from(depth, (d, i) => [i + 1, d, wide[i], accepted[i]])],
  };
});
follow([icicle, courses], redraw);
watch("value", draw);
draw();
