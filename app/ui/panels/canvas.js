// One side of the comparison. Draws the value that app/ui/panels/canvas.py encodes.
const VIRIDIS = __VIRIDIS__;
const VERDICTS = __VERDICTS__;
const COUNTERS = __COUNTERS__;
const card = element.querySelector(".ft-card");
const part = (name) => card.querySelector(name);
const picture = part(".ft-picture"), veil = part(".ft-veil"), overlay = part(".ft-overlay");
const frame = part(".ft-frame"), cursor = part(".ft-cursor"), readout = part(".ft-readout");
const REJECTED = 2, ACCEPTED = 3, REDRAWN = 4; // keys of VERDICTS
const SIDES = __SIDES__;
const inPair = () => ["fast", "plain"].includes(props.value.side); // else a race of several runs
const drafts = (v) => v.side === "fast" || (v.side !== "plain" && !v.missing.accepted);
const mask = part(".ft-mask"), other = part(".ft-other"), wipe = part(".ft-wipe");
const FADE = 24; // number of latest tokens whose verdicts a replay shows
const view = { map: "accepted", opacity: 0.35, at: null, kept: false, held: false, wiped: false };
let course = null; // of a finished run, see course() in canvas.py
let decoded = {}; // arrays of the current value
let drawn = 0; // images may finish loading out of order; a newer one must stay
let asked = 0;

function colour(level) {
  return shade((level - 1) / 254);
}

function shade(share) {
  const at = share * (VIRIDIS.length - 1), low = Math.min(Math.floor(at), VIRIDIS.length - 2);
  return VIRIDIS[low].map((c, i) => c + (VIRIDIS[low + 1][i] - c) * (at - low));
}

function depthColour(level) { // 1 = the model's own token
  return level === 1 ? VERDICTS[1].colour : shade(Math.max(0, level - 2) / Math.max(1, props.value.scales.depth - 1));
}

const colours = { depth: depthColour, pass: () => SIDES[props.value.side] };

function paint(canvas, levels, colourOf) {
  const { columns, rows } = props.value;
  canvas.width = columns;
  canvas.height = rows;
  const image = new ImageData(columns, rows);
  levels.forEach((level, i) => level && image.data.set([...colourOf(level), 255], 4 * i));
  canvas.getContext("2d").putImageData(image, 0, 0);
}

function drawOverlay() {
  const v = props.value;
  overlay.style.opacity = v.state === "running" || view.kept || view.held ? view.opacity : 0;
  // The plain side drafts nothing, so maps about drafts would only grey it out.
  const silent = v.side === "plain" && ["accepted", "probability", "depth"].includes(view.map);
  overlay.hidden = !v.maps || silent || !inPair() || Boolean(v.missing[view.map]);
  if (overlay.hidden) return;
  if (view.map === "accepted") paintVerdicts(decoded.accepted);
  else paint(overlay, view.map === "pass" ? passOf(view.at) : decoded[view.map], colours[view.map] || colour);
}

// Verdict of each token: a cross if rejected, a stroke if redrawn, so that verdicts differ without colours.
function paintVerdicts(levels) {
  const { columns, rows } = props.value, cell = Math.max(4, Math.round(512 / columns)), pen = overlay.getContext("2d");
  overlay.width = columns * cell;
  overlay.height = rows * cell;
  pen.lineWidth = Math.max(1, cell / 9);
  pen.strokeStyle = "rgb(0 0 0 / 75%)";
  levels.forEach((level, i) => {
    if (!level) return;
    const x = (i % columns) * cell, y = Math.floor(i / columns) * cell, far = cell * 0.72, near = cell * 0.28;
    pen.fillStyle = `rgb(${VERDICTS[level].colour})`;
    pen.fillRect(x, y, cell, cell);
    if (level !== REJECTED && level !== REDRAWN) return;
    pen.beginPath();
    pen.moveTo(x + near, y + far);
    pen.lineTo(x + far, y + near);
    if (level === REJECTED) {
      pen.moveTo(x + near, y + near);
      pen.lineTo(x + far, y + far);
    }
    pen.stroke();
  });
}

// Tokens of one pass: the pass of a position, else the latest.
function passOf(position) {
  const { steps } = decoded, chosen = position !== null && steps[position] >= 0 ? steps[position] : steps.reduce((a, b) => Math.max(a, b), -1);
  return Uint8Array.from(steps, (step) => Number(step === chosen && step >= 0));
}

async function drawPicture(address) {
  const { accepted, draft } = decoded, { columns, rows } = props.value;
  const mine = ++asked, bitmap = await bitmapOf(address);
  if (mine < drawn) return;
  drawn = mine;
  picture.width = bitmap.width;
  picture.height = bitmap.height;
  const pen = picture.getContext("2d"), wide = picture.width / columns, high = picture.height / rows;
  pen.drawImage(bitmap, 0, 0);
  accepted.forEach((verdict, i) => { // places without a token show the empty board
    if (!verdict && !draft[i]) pen.clearRect((i % columns) * wide, Math.floor(i / columns) * high, wide, high);
  });
  card.dataset.pictures = Number(card.dataset.pictures || 0) + 1;
  emit("picture", { side: props.value.side, title: props.value.title, picture });
}

// Replay: hides tokens not yet committed at a time, and marks the latest ones. time null: the finished picture.
function replay(time) {
  if (!course) return;
  const v = props.value, count = time === null ? course.end.length : course.end.filter((end) => end <= time).length;
  mask.width = v.columns;
  mask.height = v.rows;
  card.dataset.replayed = time === null ? "" : count;
  part(".ft-progress b").style.width = `${(100 * count) / v.limit}%`;
  if (time === null) return drawCounters(v.totals);
  const image = new ImageData(v.columns, v.rows), empty = getComputedStyle(frame).backgroundColor.match(/[0-9]+/g).slice(0, 3).map(Number);
  course.position.forEach((position, i) => {
    const age = (count - 1 - i) / FADE, seen = i < count;
    const rgb = !seen ? empty : decoded.accepted[position] === ACCEPTED ? SIDES[v.side] : VERDICTS[decoded.accepted[position]].colour;
    const strength = !seen ? 255 : drafts(v) ? Math.max(0, 1 - age) * 190 : age < 0.1 ? 120 : 0;
    image.data.set([...rgb, strength], 4 * position);
  });
  mask.getContext("2d").putImageData(image, 0, 0);
  const seconds = Math.min(time, v.totals.seconds);
  const forwards = count ? course.passes[count - 1] : 0, compression = forwards ? count / forwards : 0;
  drawCounters({ seconds, forwards, tokens_per_second: seconds ? count / seconds : 0, step_compression: compression });
}

function drawWipe() {
  wipe.hidden = other.hidden = !view.wiped || props.value?.side !== "fast";
  other.style.clipPath = `inset(0 ${100 - wipe.value / 10}% 0 0)`;
  frame.style.setProperty("--at", `${wipe.value / 10}%`);
  frame.classList.toggle("ft-wiping", !wipe.hidden);
}

function clear() {
  drawn = ++asked;
  for (const canvas of [picture, veil, overlay, mask]) canvas.width = canvas.height = 1;
  decoded = {};
  course = null;
}

const SURE = 0.05; // nats; below this entropy, one token is likely
const formats = {
  seconds: (n) => n.toFixed(2),
  tokens_per_second: (n) => n.toFixed(n < 10 ? 1 : 0),
  forwards: (n) => String(n),
  step_compression: (n) => n.toFixed(2),
};

function drawTitle() { // an empty side shows the chosen method
  const v = props.value;
  const chosen = v.state === "empty" && scope.foretokenTitles?.[v.side === "fast" ? "right" : "left"];
  part("h3").textContent = chosen || v.title;
}

function drawCounters(totals) {
  const list = part(".ft-counters");
  if (!list.childElementCount) {
    for (const [key, [label, help]] of Object.entries(COUNTERS)) {
      const cell = node("div", "", { title: help });
      cell.append(node("dt", label), node("dd"));
      cell.dataset.key = key;
      list.append(cell);
    }
  }
  for (const cell of list.children) {
    cell.querySelector("dd").textContent = totals ? formats[cell.dataset.key](totals[cell.dataset.key]) : "–";
  }
}

function drawReadout() {
  const v = props.value, at = view.at;
  cursor.hidden = at === null || !v.maps || at >= v.limit;
  if (cursor.hidden) {
    readout.textContent = v.about || (v.maps && v.side === "fast" ? "Point at a picture or at the trace to inspect a token." : "");
    return;
  }
  const row = Math.floor(at / v.columns), column = at % v.columns;
  cursor.style.cssText = `left:${(100 * column) / v.columns}%;top:${(100 * row) / v.rows}%;width:${100 / v.columns}%;height:${100 / v.rows}%`;
  const place = `row ${row + 1}, column ${column + 1}`;
  const verdict = decoded.accepted[at];
  if (!verdict) {
    readout.textContent = `${place} · ${decoded.draft[at] ? "drafted, not yet checked" : "not drawn yet"}`;
    return;
  }
  const texts = [`token ${decoded.tokens[at]}`, place];
  const fast = drafts(v);
  const value = (map) => (v.scales[map] * (decoded[map][at] - 1)) / 254;
  const chance = decoded.probability[at] ? ` (${Math.round(100 * value("probability"))} %)` : "";
  if (fast) texts.push((verdict === ACCEPTED ? "guess accepted" : VERDICTS[verdict].name) + chance);
  if (decoded.depth[at] > 1 && fast) texts.push(`depth ${decoded.depth[at] - 1}`);
  if (decoded.energy && !Number.isNaN(decoded.energy[at])) {
    texts.push(`energy ${decoded.energy[at].toFixed(2)}, threshold ${decoded.threshold[at].toFixed(2)}`);
  }
  if (decoded.top[at]) texts.push(`likeliest token ${Math.round(100 * value("top"))} %`);
  if (decoded.entropy[at]) texts.push(value("entropy") < SURE ? "the model was sure" : `entropy ${value("entropy").toFixed(2)}`);
  texts.push(`step ${Math.round(value("step")) + 1}`);
  readout.textContent = texts.join(" · ");
}

function draw() {
  const v = props.value;
  if (!v) return;
  card.dataset.state = v.state;
  card.dataset.side = v.side;
  drawTitle();
  part(".ft-empty").textContent = v.text || "";
  drawBadge(part(".ft-badge"), v.badge);
  drawCounters(v.totals);
  const tokens = v.totals ? v.totals.tokens : 0;
  card.dataset.tokens = tokens;
  part(".ft-progress b").style.width = v.limit ? `${(100 * tokens) / v.limit}%` : "0";
  picture.setAttribute("aria-label", tokens ? `${v.title}: ${tokens} of ${v.limit} tokens, ${v.state}` : "No picture yet");
  if (v.maps) {
    decoded = {};
    for (const name of Object.keys(v.maps)) decoded[name] = bytes(v.maps[name]);
    decoded.tokens = new Int32Array(bytes(v.tokens).buffer);
    decoded.steps = new Int32Array(bytes(v.steps).buffer);
    decoded.draft = bytes(v.draft);
    for (const [name, text] of Object.entries(v.energies)) decoded[name] = new Float32Array(bytes(text).buffer);
    course = v.course && {
      position: new Int32Array(bytes(v.course.position).buffer), end: new Float32Array(bytes(v.course.end).buffer),
      passes: new Int32Array(bytes(v.course.passes).buffer),
    };
    mask.width = mask.height = 1;
    card.dataset.replayed = "";
    drawPicture(v.picture);
    if (course) emit("course", { side: v.side, end: course.end }, scope);
    paint(veil, decoded.draft, () => [12, 16, 22]);
    if (inPair()) emit("scales", v.scales);
    if (v.side === "fast") {
      emit("missing", v.missing);
      emit("kinds", v.kinds);
    }
  } else clear();
  drawOverlay();
  drawReadout();
  drawWipe();
}

wipe.addEventListener("input", drawWipe);
window.addEventListener("foretoken:picture", ({ detail }) => {
  if (detail.side !== "plain") return;
  other.width = detail.picture.width;
  other.height = detail.picture.height;
  other.getContext("2d").drawImage(detail.picture, 0, 0);
});
scope.addEventListener("foretoken:replay", (event) => replay(event.detail.time));
window.addEventListener("foretoken:lost", () => { if (card.dataset.state === "running") card.dataset.state = "stopped"; });
scope.addEventListener("foretoken:titles", () => { if (props.value) drawTitle(); });
function point(event) {
  const v = props.value;
  if (!v.maps) return;
  const box = frame.getBoundingClientRect();
  const column = Math.floor(((event.clientX - box.left) / box.width) * v.columns);
  const row = Math.floor(((event.clientY - box.top) / box.height) * v.rows);
  const inside = column >= 0 && row >= 0 && column < v.columns && row < v.rows;
  const pointed = new CustomEvent("foretoken:point", { detail: inside ? row * v.columns + column : null });
  window.dispatchEvent(Object.assign(pointed, { columns: v.columns }));
}

for (const name of ["pointermove", "pointerdown"]) frame.addEventListener(name, point);
frame.addEventListener("pointerleave", () => emit("point", null));
window.addEventListener("foretoken:point", (event) => {
  view.at = event.columns && event.columns !== props.value?.columns ? null : event.detail; // a position in a picture of another size
  drawReadout();
  if (view.map === "pass") drawOverlay();
});
window.addEventListener("foretoken:overlay", (event) => { Object.assign(view, event.detail); drawOverlay(); drawWipe(); });
watch("value", draw);
draw();
