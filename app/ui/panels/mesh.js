// Two growing meshes under one camera, in one WebGL 2 context. Draws values from app/ui/panels/mesh.py.
// This file handles texts and input; mesh_camera.js, mesh_drawing.js and mesh_replay.js are included before it.
// A face is one instance of three corners, for which its cells become fine places, as those of another surface are.
const MAPS = __MAPS__;
const SIDES = __SIDES__;
const SURFACES = __SURFACES__, [DECODED, SNAPPED, CLASSICAL] = Object.keys(SURFACES);
// fresh: index of the first new face; low, deepest, last and heat: extremes over all faces
const EMPTY = { text: "", count: 0, fresh: 0, low: Infinity, deepest: 1, last: 1, heat: 1, changed: true };

const root = element.querySelector(".ft-mesh"), part = (name) => root.querySelector(name);
const canvas = part("canvas"), select = part("select"), legend = part(".ft-legend"), note = part(".ft-mesh-note");
// points: null = shown until there are faces; wipe: position of the slider between the meshes, null = side by side
const view = recall({ mode: "shaded", map: "plain", points: null, ghost: true, wipe: null });
if (!(view.map in MAPS)) view.map = "plain";
const wipe = part("[data-wipe]"), range = part(".ft-mesh-wipe input");
select.value = view.map;
range.value = 1000 * (view.wipe ?? 0.5);
const isWiped = () => view.wipe !== null && shown.length === 2;
const empty = () => ({ ...EMPTY, data: new Uint8Array(STRIDE * 256) });
// faces; another surface shown in their place; drafted faces; in a replay, faces just rejected, and the number of faces shown (null: no replay)
const newSide = () => ({ faces: empty(), surface: null, ghost: empty(), refused: empty(), hover: -1, upto: null });
const sides = Object.fromEntries(SIDES.map((name) => [name, newSide()]));
const chosen = {}; // surface of each side
let late = null; // value of a finished side whose surfaces came after the race
const meshOf = (name) => sides[name].surface ?? sides[name].faces;
const shownFaces = (name) => (chosen[name] === CLASSICAL ? meshOf(name).count : sides[name].upto ?? sides[name].faces.count);
const cloud = { text: "", count: 0, low: Infinity };
const dots = { list: [], changed: false }; // candidate vertices of the token under the lens
let shown = []; // names of the sides, from left to right
let renderer = null, asked = false;
const ROUGH_EVERY = 100, REST = 600; // milliseconds
let waiting = 0, resting = 0, finesAt = 0; // timers of a coarse and a fine frame; time from which fine frames are allowed
const pointers = new Map(); // pressed pointers, with their last events
let pressed = null; // event of the latest press
// Position of the token that completed a face of the finished right mesh; null for none.
const lastToken = (face) => (face >= 0 && chosen[shown.at(-1)] !== CLASSICAL && courses[shown.at(-1)] ? courses[shown.at(-1)].corners[6 * face + 5] - 1 : null);

// ---------------------------------------------------------------- data

const unquantize = (q) => ((q + 0.5) / __FINE__) * 2 - 1;
const fine = (cell) => (cell + 0.5) * __CELL__;

function update(mesh, text) {
  if (text === mesh.text) return;
  if (!text.startsWith(mesh.text)) Object.assign(mesh, EMPTY);
  append(mesh, bytes(text.slice(mesh.text.length)));
  mesh.text = text;
}

function append(mesh, wire) {
  const count = mesh.count + wire.length / __RECORD__;
  if (count * STRIDE > mesh.data.length) {
    const larger = new Uint8Array(STRIDE * count * 2);
    larger.set(mesh.data);
    mesh.data = larger;
  }
  for (let from = 0, to = mesh.count * STRIDE; from < wire.length; from += __RECORD__, to += STRIDE) {
    for (let corner = 0; corner < 3; corner++) {
      const place = [0, 1, 2].map((k) => fine(wire[from + 3 * corner + k]));
      new Uint16Array(mesh.data.buffer, to + 8 * corner, 4).set([...place, wire[from + 9 + corner]]);
      mesh.low = Math.min(mesh.low, unquantize(place[1]));
    }
    mesh.data.set([wire[from + 12], wire[from + 13], wire[from + 14], 0, wire[from + 15], wire[from + 16], wire[from + 17], 0], to + 24);
    if (wire[from + 15] !== __UNKNOWN__) mesh.heat = Math.max(mesh.heat, wire[from + 15]);
    if (wire[from + 10] !== __UNKNOWN__) mesh.deepest = Math.max(mesh.deepest, wire[from + 10]);
    mesh.last = Math.max(mesh.last, wire[from + 12] | (wire[from + 13] << 8) | (wire[from + 14] << 16));
  }
  Object.assign(mesh, { fresh: mesh.count || count, count, changed: true });
}

// The surfaces of a side, by name.
function surfacesOf(name) {
  const side = props.value.sides[name], own = side?.surfaces ?? {};
  return late?.course && late.course.seconds === side?.course?.seconds ? late.surfaces : own;
}

function setSurface(name) { // shows the chosen surface
  const side = sides[name], { faces } = side, text = surfacesOf(name)[chosen[name]]?.corners || "";
  if (text === (side.surface?.text ?? "")) return;
  side.surface = null;
  if (text) {
    const corners = new Uint16Array(bytes(text).buffer), count = corners.length / 9, data = new Uint8Array(STRIDE * count).fill(__UNKNOWN__);
    if (chosen[name] === SNAPPED) data.set(faces.data.subarray(0, data.length));
    side.surface = { ...EMPTY, text, count, data };
    for (let i = 0; i < 3 * count; i++) {
      new Uint16Array(data.buffer, STRIDE * Math.floor(i / 3) + 8 * (i % 3), 3).set(corners.subarray(3 * i, 3 * i + 3));
      side.surface.low = Math.min(side.surface.low, unquantize(corners[3 * i + 1]));
    }
  }
  meshOf(name).changed = true;
}

function choose(name, surface) {
  if (!surfacesOf(name)[surface]) return;
  chosen[name] = surface;
  setSurface(name);
  drawSurfaces(name);
  drawCount(name);
  tellCounts();
  tellState();
  drawReadout();
  drawBar();
}

function updateCloud(text) {
  if (text === cloud.text) return;
  const data = new Int16Array(bytes(text).buffer);
  let low = Infinity;
  for (let i = 1; i < data.length; i += 6) low = Math.min(low, data[i] / __FARTHEST__);
  Object.assign(cloud, { text, data, low, count: data.length / 6, changed: true });
}

function read(mesh, face) {
  const at = face * STRIDE, d = mesh.data, corner = (i) => Array.from(new Uint16Array(d.buffer, at + 8 * i, 3), unquantize);
  const step = d[at + 24] | (d[at + 25] << 8) | (d[at + 26] << 16);
  return { corners: [0, 1, 2].map(corner), accepted: d[at + 6], depth: d[at + 14], tokens: d[at + 22], step, entropy: d[at + 28], probability: d[at + 29], top: d[at + 30] };
}

function ground() {
  const low = Math.min(cloud.low, ...SIDES.map((name) => meshOf(name).low));
  return Number.isFinite(low) ? low : -0.95;
}

// ---------------------------------------------------------------- words

const hasFaces = () => shown.some((name) => shownFaces(name));
const cloudShown = () => cloud.count > 0 && (view.points ?? (!hasFaces() && !shown.some((name) => sides[name].faces.count)));
const hottest = () => Math.max(...shown.map((name) => sides[name].faces.heat));
const share = (level) => level / (__UNKNOWN__ - 1);
const deepest = () => Math.max(...shown.map((name) => sides[name].faces.deepest)); // over all sides, so that colours are comparable
const countText = (n, word) => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;

function drawWords(name) {
  const side = props.value.sides[name], box = part(`.ft-mesh-sides [data-side=${name}]`), list = part(`dl[data-side=${name}]`);
  box.hidden = list.hidden = !side;
  if (!side) return;
  box.dataset.state = side.state;
  drawTitle(name);
  drawSurfaces(name);
  drawBadge(box.querySelector(".ft-badge"), side.badge);
  drawCounters(name, side.counters);
}

function drawCount(name) {
  const count = shownFaces(name), box = part(`.ft-mesh-sides [data-side=${name}]`), { text, title } = props.value.sides[name];
  const isOther = name === "plain" && box.querySelector("h3").textContent !== title; // another left side is chosen
  box.querySelector(".ft-mesh-count").textContent = count ? countText(count, "face") : "";
  box.querySelector(".ft-empty-text").textContent = count || isOther ? "" : text;
}

// The buttons of a side's surfaces, and the distance of the chosen one. Once shown they keep their place, so that the page does not move.
function drawSurfaces(name) {
  const surfaces = surfacesOf(name), line = part(`.ft-surfaces[data-side=${name}]`), group = line.querySelector(".ft-segments");
  group.hidden = !surfaces[DECODED] && !line.dataset.shown;
  line.hidden = group.hidden && !surfaces[chosen[name]];
  if (!group.hidden) line.dataset.shown = true;
  for (const button of group.children) {
    button.disabled = !surfaces[button.dataset.surface];
    button.setAttribute("aria-pressed", button.dataset.surface === chosen[name]);
  }
  line.querySelector("span").textContent = surfaces[chosen[name]]?.note ?? "";
}

function drawTitle(name) { // an empty side shows the chosen method
  const side = props.value.sides[name];
  const chosenTitle = side?.state === "empty" && scope.foretokenTitles?.[name === "plain" ? "left" : "right"];
  if (!side) return;
  part(`.ft-mesh-sides [data-side=${name}] h3`).textContent = chosenTitle || side.title;
  drawCount(name);
}

function drawCounters(name, counters) {
  for (const cell of part(`dl[data-side=${name}]`).children) cell.querySelector("dd").textContent = counters[cell.dataset.key] || "–";
}

function drawReadout() {
  for (const name of shown) {
    const faces = meshOf(name), { hover } = sides[name], texts = [], untouched = turning.allowed && name === shown[0] && hasFaces();
    const hint = untouched ? "Drag to rotate, scroll to zoom, right-drag to move" : "";
    if (hover >= 0) texts.push(`face ${(hover + 1).toLocaleString("en")}`);
    if (hover >= 0 && chosen[name] !== CLASSICAL) {
      const { accepted, depth, tokens, step, entropy, probability, top } = read(faces, hover);
      if (tokens) texts.push(countText(tokens, "token"));
      if (accepted !== __UNKNOWN__) texts.push(`${Math.round(100 * share(accepted))} % of guesses accepted`);
      texts.push(`step ${step + 1}`);
      if (depth !== __UNKNOWN__) texts.push(depth ? `drafted ${depth} ahead` : "the model's own");
      if (probability !== __UNKNOWN__) texts.push(`acceptance ${Math.round(100 * share(probability))} %`);
      if (top !== __UNKNOWN__) texts.push(`likeliest token ${Math.round(100 * share(top))} %`);
      if (entropy !== __UNKNOWN__) texts.push(`entropy ${(share(entropy) * __NATS__).toFixed(2)}`);
    }
    part(`.ft-mesh-sides [data-side=${name}] .ft-readout`).textContent = texts.join(" · ") || props.value.sides[name].about || hint;
  }
}

const colourOf = (name) => `var(--ft-${{ accelerated: "fast" }[name] || name})`;

function drawLegend() {
  const { stops, help } = MAPS[view.map], items = [];
  const ends = {
    accepted: ["no token accepted", "all accepted"],
    step: ["first step", "last step"],
    depth: ["the model's own", `drafted ${countText(deepest(), "token")} ahead`],
    probability: ["0", "1"],
    top: ["0", "1"],
    entropy: ["0", `${(share(hottest()) * __NATS__).toFixed(1)} nats`],
  }[view.map];
  legend.title = help;
  if (ends) {
    const bar = node("b"), colours = `linear-gradient(90deg, ${stops.map((c) => `rgb(${c})`).join(", ")})`;
    const stripes = "repeating-linear-gradient(90deg, transparent 0 5px, rgb(0 0 0 / 28%) 5px 10px)";
    bar.style.background = view.map === "step" ? `${stripes}, ${colours}` : colours;
    items.push(ends[0], bar, ends[1]);
    if (view.map !== "step") items.push(swatch("var(--ft-mesh-unknown)", ["entropy", "top"].includes(view.map) ? "not recorded" : "nothing drafted"));
  }
  const stripe = (name, i) => `${colourOf(name)} ${(100 * i) / shown.length}% ${(100 * (i + 1)) / shown.length}%`;
  const both = `linear-gradient(90deg, ${shown.map(stripe).join(", ")})`;
  const moving = root.dataset.state === "running" || Boolean(root.dataset.replayed);
  if (view.map === "plain" && moving && hasFaces()) items.push(swatch(both, "newest faces"));
  if (root.dataset.ghosts > 0) items.push(swatch("var(--ft-mesh-ghost)", "draft, not yet checked"));
  if (root.dataset.refused > 0) items.push(swatch("repeating-linear-gradient(-45deg, var(--ft-mesh-refused) 0 3px, transparent 3px 5px)", "rejected"));
  legend.replaceChildren(...items);
}

function drawBar() {
  for (const button of root.querySelectorAll("[data-mode]")) button.setAttribute("aria-pressed", button.dataset.mode === view.mode);
  part("[data-show=points]").setAttribute("aria-pressed", cloudShown());
  part("[data-show=points]").disabled = !cloud.count;
  part("[data-show=ghost]").setAttribute("aria-pressed", view.ghost);
  wipe.disabled = shown.length !== 2;
  wipe.setAttribute("aria-pressed", isWiped());
  part(".ft-mesh-wipe").hidden = !isWiped();
  root.style.setProperty("--wipe", `${range.value / 10}%`);
  range.style.setProperty("--at", `${range.value / 10}%`);
  root.dataset.wiped = isWiped();
  Object.assign(root.dataset, { mode: view.mode, map: view.map, points: cloudShown() ? cloud.count : 0 });
  drawLegend();
  ask();
}

function draw() {
  const v = props.value;
  if (!v) return;
  if (!root.dataset.context) begin();
  shown = SIDES.filter((name) => v.sides[name]);
  updateCloud(v.points);
  for (const name of SIDES) {
    const { faces, ghost } = sides[name], side = v.sides[name];
    endReplay(name, side?.course);
    update(faces, side ? side.faces : "");
    update(ghost, side ? side.ghost : "");
    if (side?.state === "running" || !surfacesOf(name)[chosen[name]]) chosen[name] = side?.shows || DECODED;
    setSurface(name);
    drawWords(name);
  }
  if ([root.dataset.state, v.state].includes("running")) putOffFine();
  root.dataset.state = v.state;
  root.dataset.views = shown.length;
  root.dataset.replayed = "";
  tellCounts();
  for (const name of shown) tellCourse(name);
  tellState();
  drawReadout();
  drawBar();
}

// Tells screen readers what is shown, and the other panels which surfaces can be.
function tellState() {
  const word = (name) => (chosen[name] === DECODED ? "" : `, ${SURFACES[chosen[name]].toLowerCase()}`);
  const texts = shown.map((name) => `${props.value.sides[name].title}: ${countText(shownFaces(name), "face")}, ${props.value.sides[name].state}${word(name)}`);
  const nothing = cloud.count ? `${countText(cloud.count, "input point")}, no mesh yet` : "No mesh yet";
  canvas.setAttribute("aria-label", hasFaces() ? texts.join(". ") : nothing);
  const last = shown.at(-1);
  emit("surface-shown", { shown: chosen[last], known: Object.keys(surfacesOf(last)) }, scope);
}

function tellCounts() {
  for (const name of SIDES) {
    if (sides[name].hover >= shownFaces(name)) sides[name].hover = -1;
    root.dataset[`${name}Faces`] = shownFaces(name);
    root.dataset[`${name}Ghosts`] = sides[name].ghost.count;
  }
  for (const kind of ["ghost", "refused"]) {
    root.dataset[kind === "ghost" ? "ghosts" : kind] = SIDES.reduce((sum, name) => sum + sides[name][kind].count, 0);
  }
}

// ---------------------------------------------------------------- input

let elsewhere = 0; // time of the last wheel event outside the view

function touch(move) {
  turning.allowed = false;
  move();
  drawReadout();
  ask();
}

const reset = () => touch(() => Object.assign(camera, HOME));

function point(event) { // the face under the pointer
  const box = canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
  boxes().forEach(([left, top, width, height], i) => {
    const open = !isWiped() || (i === 0) === (x < left + width * view.wipe);
    const inside = open && event.type !== "pointerleave" && x >= left && y >= top && x < left + width && y < top + height;
    const found = inside ? hit(shown[i], ((x - left) / width) * 2 - 1, 1 - ((y - top) / height) * 2, width / height) : -1;
    if (found === sides[shown[i]].hover) return;
    sides[shown[i]].hover = found;
    if (i === shown.length - 1) emit("point", lastToken(found)); // the right mesh is the one whose tokens are explained
    drawReadout();
    ask();
  });
}

canvas.addEventListener("pointerdown", (event) => {
  pressed = event;
  pointers.set(event.pointerId, event);
  canvas.setPointerCapture(event.pointerId);
});
canvas.addEventListener("pointermove", (event) => {
  const before = pointers.get(event.pointerId);
  if (!before) return point(event);
  pointers.set(event.pointerId, event);
  const height = boxes()[0][3], across = (event.clientX - before.clientX) / height, down = (event.clientY - before.clientY) / height;
  const other = [...pointers.values()].find((p) => p.pointerId !== event.pointerId);
  touch(() => {
    if (other) {
      const distanceTo = (p) => Math.hypot(p.clientX - other.clientX, p.clientY - other.clientY);
      zoom(distanceTo(before) / Math.max(distanceTo(event), 1));
      pan(across / 2, down / 2);
    } else if (event.shiftKey || event.buttons & 6) pan(across, down);
    else orbit(across * 4.5, down * 3.5);
  });
});
for (const type of ["pointerup", "pointercancel"]) canvas.addEventListener(type, (event) => { pointers.delete(event.pointerId); ask(); });
canvas.addEventListener("pointerleave", point);
canvas.addEventListener("click", (event) => { // not after a drag
  const began = pressed && Math.hypot(event.clientX - pressed.clientX, event.clientY - pressed.clientY) < 4;
  point(event);
  const end = began ? lastToken(sides[shown.at(-1)].hover) : null;
  if (end !== null) emit("choose-token", end, scope);
});
canvas.addEventListener("contextmenu", (event) => event.preventDefault());
canvas.addEventListener("dblclick", reset);
window.addEventListener("wheel", (event) => { if (event.target !== canvas) elsewhere = event.timeStamp; }, { passive: true });
canvas.addEventListener("wheel", (event) => {
  if (event.timeStamp - elsewhere < 250) { // the page is being scrolled past the view
    elsewhere = event.timeStamp;
    return;
  }
  event.preventDefault();
  const notch = Math.max(-60, Math.min(60, event.deltaY * (event.deltaMode ? 20 : 1)));
  touch(() => zoom(Math.exp(notch * (event.ctrlKey ? 0.01 : 0.002)))); // a pinch on a touchpad is a wheel event with ctrl
}, { passive: false });

const ARROWS = { ArrowLeft: [1, 0], ArrowRight: [-1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
canvas.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const way = ARROWS[event.key];
  if (way) touch(() => (event.shiftKey ? pan(-way[0] * 0.06, -way[1] * 0.06) : orbit(way[0] * 0.12, way[1] * 0.12)));
  else if (event.key === "+" || event.key === "=") touch(() => zoom(0.88));
  else if (event.key === "-") touch(() => zoom(1 / 0.88));
  else if (event.key === "0" || event.key === "Home") reset();
  else if (event.key === "f") actions.fullscreen();
  else return;
  event.preventDefault();
});

const actions = {
  reset,
  save() {
    paint(); // the drawing buffer is lost once the browser has shown it
    canvas.toBlob((blob) => save(blob, "foretoken-mesh.png"));
  },
  fullscreen: () => (document.fullscreenElement ? document.exitFullscreen() : root.requestFullscreen()),
};
for (const button of root.querySelectorAll("[data-do]")) button.addEventListener("click", () => actions[button.dataset.do]());
function setView(change) {
  Object.assign(view, change);
  remember({ ...view, points: view.points || null }); // a later visit begins with the points, until there are faces
  drawBar();
}
for (const button of root.querySelectorAll("[data-mode]")) {
  button.addEventListener("click", () => setView({ mode: button.dataset.mode }));
}
for (const button of root.querySelectorAll("[data-surface]")) {
  button.addEventListener("click", () => choose(button.closest("[data-side]").dataset.side, button.dataset.surface));
}
for (const button of root.querySelectorAll("[data-show]")) {
  button.addEventListener("click", () => setView({ [button.dataset.show]: button.getAttribute("aria-pressed") !== "true" }));
}
wipe.addEventListener("click", () => setView({ wipe: isWiped() ? null : range.value / 1000 }));
range.addEventListener("input", () => setView({ wipe: range.value / 1000 }));
select.addEventListener("change", () => setView({ map: select.value }));
scope.addEventListener("foretoken:replay", ({ detail }) => replay(detail.time));
scope.addEventListener("foretoken:kept-faces", ({ detail }) => { // shows only the first faces of the right mesh; null: all
  const name = shown.at(-1);
  if (!props.value || (detail === null && sides[name].upto === null)) return;
  if (detail === null) return draw();
  Object.assign(sides[name], { upto: detail, fresh: detail });
  meshOf(name).changed = true;
  drawCount(name);
  tellCounts();
  drawBar();
});
scope.addEventListener("foretoken:candidates", ({ detail }) => {
  if (!detail.length && !dots.list.length) return;
  Object.assign(dots, { list: detail.sort((a, b) => a.p - b.p), changed: true });
  root.dataset.candidates = detail.length;
  ask();
});
scope.addEventListener("foretoken:surface", ({ detail }) => choose(shown.at(-1), detail));
scope.addEventListener("foretoken:surfaces", ({ detail }) => {
  late = detail;
  if (!props.value) return;
  shown.forEach(drawSurfaces);
  tellState();
});
scope.addEventListener("foretoken:titles", () => SIDES.forEach(drawTitle));
scope.addEventListener("foretoken:running", putOffFine);

// ---------------------------------------------------------------- start

function begin() {
  renderer = createRenderer();
  root.dataset.context = renderer ? "ok" : "none";
  note.textContent = renderer ? "" : "This browser does not support WebGL 2, so meshes cannot be drawn here. All numbers are still shown.";
  ask();
}

canvas.addEventListener("webglcontextlost", (event) => {
  event.preventDefault(); // otherwise the context is never restored
  renderer = null;
  root.dataset.context = "lost";
  note.textContent = "The browser lost the 3D view and will restore it shortly.";
});
canvas.addEventListener("webglcontextrestored", begin);
new ResizeObserver(ask).observe(canvas);
new MutationObserver(ask).observe(document.body, { attributes: true, attributeFilter: ["class"] });
if (props.value) begin(); // a view without a value waits for one
watch("value", draw);
draw();
