// The stage of the Lab tab. Draws the value that app/ui/panels/lab.py encodes; keeps the snapshots A and B in the browser.
__CHART__
const box = element.querySelector(".ft-lab"), scope = element.closest("[role=tabpanel]") || window;
const picture = box.querySelector(".ft-lab-canvas"), film = box.querySelector(".ft-film"), shelf = box.querySelector(".ft-snapshots");
const NAMES = ["A", "B"];
const chart = Object.fromEntries(["course", "curve", "places"].map((name) => {
  const card = box.querySelector(`[data-chart=${name}]`);
  return [name, { card, canvas: card.querySelector("canvas"), output: card.querySelector("output"), about: card.querySelector(".ft-about-chart"), legend: card.querySelector(".ft-legend"), at: null, told: () => {} }];
}));
const kept = {}; // snapshots: name -> a setting
let shown = {}; // the arrays of the value
let asked = 0;

const value = () => props.value || {};
const settings = () => value().settings || [];
const setting = (number) => settings().find((each) => each.number === number);
const current = () => setting(value().now);
const whole = (number) => number.toLocaleString("en", { maximumFractionDigits: number < 10 ? 1 : 0 });
const inWords = (deviation) => (deviation === null ? "not measured" : deviation === 0 ? "0" : deviation.toFixed(4));
const nameOf = (each) => each.title + (each.changed ? `, ${each.changed}` : "");
const say = (each) => [nameOf(each), `${whole(each.speed)} tokens / s`, `${each.compression.toFixed(2)} tokens / pass`,
  each.exact ? "exact" : `deviation ${inWords(each.deviation)}`, `${whole(each.passes)} passes`].join(" · ");
const colourOf = (page, each) => (each.exact ? page.good : page.bad);
const tagOf = (number) => NAMES.filter((name) => kept[name]?.number === number && kept[name].id === value().id).join(" ");

async function drawPicture() {
  const { picture: address } = value();
  if (!address) return;
  const mine = ++asked, bitmap = await createImageBitmap(new Blob([bytes(address.split(",")[1])], { type: "image/jpeg" }));
  if (mine !== asked) return;
  picture.width = bitmap.width;
  picture.height = bitmap.height;
  picture.getContext("2d").drawImage(bitmap, 0, 0);
  picture.setAttribute("aria-label", `The picture in progress: ${value().prompt}`);
}

function drawNumbers() {
  const v = value(), now = current(), put = (key, text) => { box.querySelector(`[data-key=${key}] dd`).textContent = text; };
  const said = v.example || (now ? nameOf(now) : v.said || "");
  const line = box.querySelector(".ft-lab-now");
  if (line.textContent !== said) line.textContent = said;
  box.querySelector(".ft-empty").textContent = v.settings ? "" : v.state === "running" ? "" : "The picture grows here.";
  put("tokens_per_second", now ? whole(now.speed) : "–");
  put("speedup", now && v.plain ? `${(now.speed / v.plain).toFixed(2)}×` : "–");
  put("compression", now ? now.compression.toFixed(2) : "–");
  put("deviation", now ? (now.exact ? "0" : now.deviation === null ? "?" : now.deviation.toFixed(3)) : "–");
  put("pictures", v.settings ? String(v.pictures) : "–");
  box.querySelector("[data-key=pictures] dt").textContent = box.dataset.kind === "mesh" ? "meshes" : "pictures";
}

function drawFilm() {
  const found = value().film || [], here = [...film.children].map((each) => each.dataset.number).join();
  if (found.map((each) => each.number).join() === here) return;
  film.replaceChildren(...found.map((each) => {
    const image = Object.assign(new Image(56, 56), { src: each.picture, alt: `Picture ${each.number}: ${each.said}`, title: each.said });
    image.dataset.number = each.number;
    image.setAttribute("role", "listitem");
    return image;
  }));
}

// --- over time ---------------------------------------------------------------------------------------------------------

const spanOf = (values, least) => { const known = [...values].filter((x) => !Number.isNaN(x)); return Math.max(least, ...known); };

function drawCourse(page, at = null) {
  const v = value(), { pen, width, height } = page, { time, speed, deviation } = shown, end = Math.max(4, v.clock || 0);
  const left = 46, right = width - 12, middle = Math.round(height * 0.5), x = { range: [0, end], text: (s) => `${s}` };
  const tops = [52, middle + 26], bottoms = [middle - 20, height - 38];
  const fastest = spanOf([...speed, v.plain || 0], 10) * 1.1, furthest = spanOf(deviation, 0.05) * 1.15;
  const [across, up] = axes(page, { left, right, top: tops[0], bottom: bottoms[0] }, { ...x, text: () => "" },
    { range: [0, fastest], title: "Speed (tokens / s)", text: whole });
  const [, high] = axes(page, { left, right, top: tops[1], bottom: bottoms[1] }, { ...x, title: "Time on the clock (s)" },
    { range: [0, furthest], title: "Deviation (total variation distance, 0 to 1)" });
  if (v.plain) {
    trail(pen, [[left, up(v.plain)], [right, up(v.plain)]], page.plain, { dash: [4, 4], width: 1 });
    write(pen, "plain decoding", right, up(v.plain) + (up(v.plain) + 14 > bottoms[0] ? -8 : 8), page.plain, "right");
  }
  drawTurns(page, across, [30, bottoms[1]], right);
  const line = (values, place) => Array.from(values, (y, i) => (Number.isNaN(y) ? null : [across(time[i]), place(y)]));
  trail(pen, line(speed, up), page.fast, { width: 1.75 });
  const measured = line(deviation, high).filter(Boolean); // not every pass is measured
  trail(pen, measured, page.bad, { width: 1.75 });
  if (measured.length < 60) measured.forEach(([x, y]) => dot(pen, x, y, 2, page.bad));
  if (deviation.length && [...deviation].every(Number.isNaN)) write(pen, "This method does not measure its deviation.", left + 10, (tops[1] + bottoms[1]) / 2, page.muted);
  if (at === null || at >= time.length) return;
  trail(pen, [[across(time[at]), tops[0]], [across(time[at]), bottoms[1]]], page.text, { width: 1 });
  dot(pen, across(time[at]), up(speed[at]), 4, page.fast);
  if (!Number.isNaN(deviation[at])) dot(pen, across(time[at]), high(deviation[at]), 4, page.bad);
}

// A tick where a knob moved; moves of a drag share a label.
function drawTurns(page, across, [top, bottom], right) {
  const groups = [];
  for (const { time, letter, before, after } of value().turned || []) {
    const at = across(time), group = groups.findLast((each) => each.letter === letter);
    trail(page.pen, [[at, top], [at, bottom]], page.accent, { dash: [3, 3], width: 1 });
    if (group && at - group.end < 70) Object.assign(group, { after, end: at });
    else groups.push({ letter, before, after, at, end: at });
  }
  const free = [-Infinity, -Infinity]; // of both rows of labels
  for (const { letter, before, after, at } of groups) {
    const text = `${letter} ${before} → ${after}`.trim(), wide = page.pen.measureText(text).width;
    const from = Math.max(0, Math.min(at + 3, right - wide)), row = free.findIndex((end) => end < from);
    if (row < 0) continue; // no room: pointing at the line says it
    write(page.pen, text, from, 8 + 13 * row, page.accent);
    free[row] = from + wide + 8;
  }
}

// Knobs that were moved in a stretch of the course.
function movedIn(i) {
  const from = i ? shown.time[i - 1] : -1, found = (value().turned || []).filter(({ time }) => time >= from && time < shown.time[i]);
  return found.map(({ letter, before, after }) => `${letter} ${before} → ${after}`.trim());
}

const sayCourse = (i) => [`${shown.time[i].toFixed(1)} s`, `${whole(shown.speed[i])} tokens / s`, `${shown.compression[i].toFixed(2)} tokens / pass`,
  Number.isNaN(shown.deviation[i]) ? "deviation not measured here" : `deviation ${inWords(shown.deviation[i])}`, ...movedIn(i)].join(" · ");

// --- speed against deviation -------------------------------------------------------------------------------------------

const dots = () => settings().filter((each) => each.counts && each.deviation !== null).sort((a, b) => a.speed - b.speed);

function drawCurve(page, at = null) {
  const found = dots(), { pen, width, height } = page, v = value();
  const box = { left: 46, right: width - 14, top: 34, bottom: height - 38 };
  const speeds = [...found.map((each) => each.speed), v.plain || 0], fastest = Math.max(10, ...speeds) * 1.08;
  const furthest = Math.max(0.02, ...found.map((each) => each.deviation)) * 1.15;
  const [across, up] = axes(page, box, { range: [0, fastest], title: "Speed (tokens / s)", text: whole },
    { range: [0, furthest], title: "Deviation (total variation distance; 0 is exact)" });
  if (v.plain) {
    trail(pen, [[across(v.plain), box.top], [across(v.plain), box.bottom]], page.plain, { dash: [4, 4], width: 1 });
    write(pen, "plain", across(v.plain) + 4, box.top + 8, page.plain);
  }
  write(pen, "better ↘", box.right, box.top - 12, page.good, "right");
  const path = (v.curve || []).map(setting).filter((each) => each && found.includes(each));
  trail(pen, path.map((each) => [across(each.speed), up(each.deviation)]), page["line-strong"], { width: 1.5 });
  found.forEach((each, i) => {
    const x = across(each.speed), y = up(each.deviation), size = each.number === v.now ? 6 : 4;
    dot(pen, x, y, size, colourOf(page, each), each.exact ? "disc" : "diamond");
    const tag = tagOf(each.number);
    if (tag) write(pen, tag, x, y - 13, page.text, "center");
    if (i !== at && each.number !== v.now) return;
    pen.beginPath();
    pen.arc(x, y, size + 4, 0, 2 * Math.PI);
    pen.strokeStyle = i === at ? page.text : page.muted;
    pen.lineWidth = 1.5;
    pen.stroke();
  });
  return found.map((each) => [across(each.speed), up(each.deviation)]);
}

// --- acceptance by place -----------------------------------------------------------------------------------------------

function drawPlaces(page, at = null) {
  const now = current(), shares = now?.shares || [], { pen, width, height } = page, count = Math.max(4, shares.length);
  const box = { left: 46, right: width - 14, top: 34, bottom: height - 38 };
  const places = Array.from({ length: count }, (_, i) => i + 1);
  const [across, up] = axes(page, box, { range: [0.5, count + 0.5], title: "Place in the draft (1 = next token)", ticks: places.filter((i) => count <= 10 || i % 2), text: String },
    { range: [0, 1], title: "Accepted, of those reached (%)", ticks: [0, 0.25, 0.5, 0.75, 1], text: (s) => String(100 * s) });
  const wide = Math.max(2, (across(2) - across(1)) * 0.72), marks = { A: page.plain, B: page.fast };
  shares.forEach((share, i) => {
    pen.fillStyle = page.accent;
    pen.globalAlpha = at === null || at === i ? 0.85 : 0.45;
    pen.fillRect(across(i + 1) - wide / 2, up(share), wide, box.bottom - up(share));
    pen.globalAlpha = 1;
  });
  for (const name of NAMES) {
    const line = kept[name]?.shares || [];
    trail(pen, line.map((share, i) => [across(i + 1), up(share)]), marks[name], { width: 1.75, dash: name === "A" ? [4, 3] : [] });
    if (line.length) write(pen, name, across(line.length) + wide / 2 + 2, up(line.at(-1)), marks[name]);
  }
  if (!shares.length) write(pen, now && now.passes > 2 ? `${now.title} accepts its drafts in no order.` : "", box.left + 10, (box.top + box.bottom) / 2, page.muted);
}

// --- snapshots ---------------------------------------------------------------------------------------------------------

function keep(name) {
  const now = current();
  if (!now) return;
  kept[name] = { ...now, id: value().id };
  redraw();
}

function back(name) {
  if (!kept[name]) return;
  const { name: method, knobs } = kept[name];
  window.dispatchEvent(new CustomEvent("foretoken:want", { detail: { panel: "lab-wanted", value: { name: method, knobs, number: Date.now() } } }));
}

function drawSnapshots() {
  for (const name of NAMES) { // of this loop: with what was measured since
    const now = kept[name] && kept[name].id === value().id ? setting(kept[name].number) : null;
    if (now) kept[name] = { ...now, id: value().id };
  }
  if (!shelf.childElementCount) {
    shelf.replaceChildren(...NAMES.map((name) => {
      const line = document.createElement("div");
      line.dataset.snapshot = name;
      line.innerHTML = '<button type="button" data-do="back"></button><span></span><button type="button" data-do="keep">Keep</button>';
      const [take, put] = line.querySelectorAll("button");
      take.textContent = name;
      take.title = `Bring snapshot ${name} back (key ${name})`;
      put.setAttribute("aria-label", `Keep these knobs as snapshot ${name}`);
      take.addEventListener("click", () => back(name));
      put.addEventListener("click", () => keep(name));
      return line;
    }));
  }
  for (const line of shelf.children) {
    const found = kept[line.dataset.snapshot], [take, put] = line.querySelectorAll("button");
    take.disabled = !found;
    put.disabled = !current();
    take.setAttribute("aria-pressed", Boolean(found) && found.number === value().now && found.id === value().id);
    line.querySelector("span").textContent = found ? say(found) : `Snapshot ${line.dataset.snapshot} is empty.`;
  }
}

// --- all of it ---------------------------------------------------------------------------------------------------------

let points = []; // of the curve, on the canvas
const draws = { course: drawCourse, curve: drawCurve, places: drawPlaces };
const saying = { course: sayCourse, curve: (i) => say(dots()[i]), places: (i) => `place ${i + 1}: ${(100 * current().shares[i]).toFixed(1)} % of ${whole(current().reached[i])} drafts accepted` };
const counts = { course: () => shown.time?.length || 0, curve: () => dots().length, places: () => current()?.shares.length || 0 };

function redraw() {
  if (!shown.time) return;
  for (const [name, each] of Object.entries(chart)) {
    if (each.at !== null && each.at >= counts[name]()) each.at = null;
    if (each.canvas.getBoundingClientRect().width) {
      const placed = draws[name](sheet(each.canvas), each.at);
      if (name === "curve") points = placed;
    }
    each.output.textContent = each.at === null ? "" : saying[name](each.at);
    each.told();
  }
  drawSnapshots();
}

function drawLegends() {
  const style = getComputedStyle(box), colour = (name) => style.getPropertyValue(`--ft-${name}`);
  chart.course.about.textContent = "A dashed line is a moved knob, with its old and new value. Good is a high line above and a low one below.";
  chart.course.legend.replaceChildren(swatch(colour("fast"), "speed", "stroke"), swatch(colour("bad"), "deviation; exact methods have none", "stroke"), swatch(colour("accent"), "a knob was moved", "stroke dashed"));
  chart.curve.about.textContent = "A point for every setting you have tried. It grows as you play: move δ, τ, β or Θ.";
  chart.curve.legend.replaceChildren(swatch(colour("good"), "exact", "dot"), swatch(colour("bad"), "relaxed", "diamond"), swatch(colour("line-strong"), "the moved knob's values", "stroke"));
  chart.places.about.textContent = "How far ahead drafting pays: where the bars are low, a smaller window costs nothing.";
  chart.places.legend.replaceChildren(swatch(colour("accent"), "these knobs", "square"), swatch(colour("plain"), "snapshot A", "stroke dashed"), swatch(colour("fast"), "snapshot B", "stroke"));
}

function draw() {
  const v = value();
  box.dataset.state = v.state || "empty";
  box.dataset.kind = v.kind || box.dataset.kind || "image";
  box.dataset.example = Boolean(v.example);
  box.dataset.settings = settings().length;
  box.dataset.turned = (v.turned || []).length;
  box.dataset.pictures = v.pictures || 0;
  for (const { card } of Object.values(chart)) card.dataset.state = v.settings ? v.state : "empty";
  shown = v.settings ? Object.fromEntries(["time", "speed", "compression", "deviation"].map((name) => [name, numbers(v[name], Float32Array)])) : {};
  drawNumbers();
  drawFilm();
  drawPicture();
  drawSnapshots();
  redraw();
  scope.dispatchEvent(new CustomEvent("foretoken:running", { detail: v.state === "running" }));
}

const across = (canvas, event) => { const frame = canvas.getBoundingClientRect(); return [event.clientX - frame.left, event.clientY - frame.top, frame.width]; };
const nearest = (distances) => distances.reduce((best, d, i) => (d < distances[best] ? i : best), 0);
const pointing = {
  course: (x, y, width) => nearest(Array.from(shown.time, (t) => Math.abs(46 + (t / Math.max(4, value().clock)) * (width - 58) - x))),
  curve: (x, y) => { const far = points.map(([px, py]) => Math.hypot(px - x, py - y)), i = nearest(far); return far[i] < 24 ? i : null; },
  places: (x, y, width) => Math.min(counts.places() - 1, Math.max(0, Math.floor(((x - 46) / (width - 60)) * Math.max(4, counts.places())))),
};
for (const [name, each] of Object.entries(chart)) {
  const go = (to) => { each.at = to; redraw(); };
  each.canvas.addEventListener("pointermove", (event) => { if (counts[name]()) go(pointing[name](...across(each.canvas, event))); });
  each.canvas.addEventListener("pointerleave", () => go(null));
  const title = each.card.querySelector("h3").textContent;
  each.told = readable(each.canvas, () => `${title}, ${counts[name]()} entries`, { count: counts[name], at: () => each.at, go, say: saying[name] });
  exports(each.card.querySelector("header"), () => ({
    name: `lab-${name}`, title: `${title}: ${nameOf(current())}`, rows: rows[name](),
    figures: [{ title: each.about.textContent, width: name === "course" ? 920 : 560, height: name === "course" ? 380 : 340, draw: (page) => draws[name](page) }],
    made: { method: current().title, knobs: Object.entries(current().knobs).map(([k, v]) => `${k} ${v}`).join(", "), ...value().made },
  }));
}
const rows = {
  course: () => [["seconds", "tokens_per_second", "tokens_per_pass", "deviation"], ...Array.from(shown.time, (t, i) => [t, shown.speed[i], shown.compression[i], shown.deviation[i]].map((n) => (Number.isNaN(n) ? "" : +n.toFixed(5))))],
  curve: () => [["method", "knobs", "exact", "tokens_per_second", "tokens_per_pass", "deviation", "passes"], ...settings().map((s) => [s.title, Object.entries(s.knobs).map(([k, v]) => `${k} ${v}`).join("; "), String(s.exact), +s.speed.toFixed(3), +s.compression.toFixed(4), s.deviation === null ? "" : +s.deviation.toFixed(6), s.passes])],
  places: () => [["place", "accepted_share", "reached"], ...current().shares.map((share, i) => [i + 1, share, current().reached[i]])],
};
document.addEventListener("keydown", (event) => { // A and B swap the snapshots while the tab is open
  const name = event.key.toUpperCase();
  if (!NAMES.includes(name) || event.ctrlKey || event.metaKey || event.altKey || !element.offsetParent) return;
  if (event.target.closest("input:not([type=range]), textarea, select, [contenteditable]")) return;
  back(name);
});
follow(Object.values(chart).map(({ canvas }) => canvas), () => { drawLegends(); redraw(); });
watch("value", draw);
drawLegends();
draw();
