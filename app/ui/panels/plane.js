// Speed against fidelity, a point for each setting, and the table of the same rows. Draws tables of app/ui/tabs/bench_rows.py.
__CHART__
const TABLES = __TABLES__, HERE = __HERE__;
const card = element.querySelector(".ft-plane"), canvas = card.querySelector("canvas"), output = card.querySelector("output");
const select = card.querySelector("select"), load = card.querySelector("[data-do=load]"), legend = card.querySelector(".ft-legend");
const head = card.querySelector("thead"), body = card.querySelector("tbody");
const SHAPES = { plain: "square", exact: "disc", relaxed: "diamond" };
const NAMES = { plain: "plain decoding", exact: "exact: the same distribution", relaxed: "relaxed: another distribution" };
const TABS = { image: "Image", mesh: "Mesh" };
let at = null; // the point that is read, in the order of its speed
let sorted = null; // [column, direction] of the table
let places = []; // of the points on the canvas

const all = () => [...TABLES, ...(props.value ? [{ ...props.value, name: HERE }] : [])];
const table = () => all().find((each) => each.name === select.value) || all()[0];
const points = () => (table()?.rows || []).map((row) => row.point).filter(Boolean).sort((a, b) => a.x - b.x);
const colourOf = (page, group) => ({ plain: page.plain, exact: page.good, relaxed: page.bad })[group];
const signed = (number, digits) => number.toFixed(digits).replace("-", "−");
const digits = () => (table().kind === "image" ? 3 : 2);
const say = (p) => [p.title, `${p.x.toFixed(2)}× (95 % interval ${p.interval[0].toFixed(2)} to ${p.interval[1].toFixed(2)})`,
  `${table().columns.at(-1).toLowerCase()} ${signed(p.y, digits())} (quartiles ${p.quartiles.map((q) => signed(q, digits())).join(" to ")})`,
  `${p.compression.toFixed(2)} tokens a pass`, NAMES[p.group]].join(" · ");

function rangeOf(values, least) {
  const low = Math.min(...values), high = Math.max(...values), room = Math.max(least, high - low) * 0.12;
  return [low - room, high + room];
}

// The points that no other one beats in both directions.
function frontier(found, better) {
  const sign = better === "up" ? 1 : -1;
  return found.filter((p) => !found.some((other) => other.x > p.x && other.y * sign >= p.y * sign)).sort((a, b) => a.x - b.x);
}

// Writes the names of the points where they hide no other name or point.
function drawNames(page, box, spots) {
  const taken = spots.map(({ x, y }) => [x - 6, y - 6, x + 6, y + 6]);
  const free = (area) => area[0] >= box.left && area[2] <= box.right && area[1] >= box.top - 4 && area[3] <= box.bottom
    && !taken.some((other) => area[0] < other[2] && area[2] > other[0] && area[1] < other[3] && area[3] > other[1]);
  for (const { x, y, point, chosen } of [...spots].sort((a, b) => b.chosen - a.chosen)) {
    const wide = page.pen.measureText(point.title).width;
    const tries = [[x + 5, y - 11], [x + 5, y + 12], [x - 5 - wide, y - 11], [x - 5 - wide, y + 12], [x - wide / 2, y - 15], [x - wide / 2, y + 16]];
    const spot = tries.find(([left, middle]) => free([left, middle - 6, left + wide, middle + 6]));
    if (!spot) continue;
    taken.push([spot[0], spot[1] - 6, spot[0] + wide, spot[1] + 6]);
    write(page.pen, point.title, spot[0], spot[1], chosen ? page.text : page.muted);
  }
}

function drawPlane(page, reading = at) {
  const found = points(), { pen, width, height } = page, shown = table();
  const box = { left: 46, right: width - 14, top: 34, bottom: height - 40 };
  const x = { range: rangeOf([0.9, ...found.flatMap((p) => p.interval)], 0.2), title: shown.axes.x, text: (v) => `${round(v, 2)}×` };
  const y = { range: rangeOf(found.map((p) => p.y), 0.02), title: shown.axes.y, flipped: shown.axes.better === "down", text: (v) => round(v, 3) };
  const [across, up] = axes(page, box, x, y), plain = found.find((p) => p.group === "plain" && p.x === 1);
  pen.globalAlpha = 0.07; // faster than plain decoding
  pen.fillStyle = page.good;
  pen.fillRect(across(1), box.top, box.right - across(1), box.bottom - box.top);
  pen.globalAlpha = 1;
  trail(pen, [[across(1), box.top], [across(1), box.bottom]], page["line-strong"], { dash: [4, 4], width: 1 });
  if (plain) trail(pen, [[box.left, up(plain.y)], [box.right, up(plain.y)]], page.plain, { dash: [4, 4], width: 1 });
  write(pen, "better ↗", box.right - 4, box.top + 10, page.good, "right");
  trail(pen, frontier(found, shown.axes.better).map((p) => [across(p.x), up(p.y)]), page["line-strong"], { width: 1.5 });
  const spots = found.map((p, i) => ({ x: across(p.x), y: up(p.y), point: p, chosen: i === reading }));
  for (const { x: px, y: py, point, chosen } of spots) {
    const colour = colourOf(page, point.group);
    pen.globalAlpha = chosen ? 0.9 : 0.35;
    trail(pen, [[across(point.interval[0]), py], [across(point.interval[1]), py]], colour, { width: chosen ? 2 : 1.25 });
    pen.globalAlpha = 1;
    dot(pen, px, py, chosen ? 6.5 : 4.5, colour, SHAPES[point.group]);
    if (!chosen) continue;
    pen.beginPath();
    pen.arc(px, py, 10, 0, 2 * Math.PI);
    pen.strokeStyle = page.text;
    pen.lineWidth = 1.5;
    pen.stroke();
  }
  drawNames(page, box, spots);
  return spots;
}

function tell() {
  const found = points(), point = at === null ? null : found[at];
  output.textContent = point ? say(point) : "Point at a setting, or use the arrow keys, to read it. A click or Enter loads it.";
  load.hidden = !point?.settings;
  load.textContent = `Load into the ${TABS[table()?.kind] || ""} tab`;
  for (const row of body.rows) row.dataset.chosen = Boolean(point) && row.dataset.title === point.title;
}

let describe = () => {};

function redraw() {
  const shown = table();
  canvas.parentElement.hidden = !shown?.axes;
  if (shown?.axes && canvas.getBoundingClientRect().width) places = drawPlane(sheet(canvas));
  tell();
  describe();
}

// Loads the settings of a point into its tab; of an unopened tab only when it is there.
function loads(point) {
  if (!point?.settings) return undefined;
  const kind = table().kind;
  [...document.querySelectorAll("#tabs button[role=tab]")].find((tab) => tab.textContent.trim() === TABS[kind])?.click();
  if (kind === "image") return askFor(point.settings);
  window.foretokenWanted = { panel: "mesh-wanted", value: point.settings }; // for a tab that opens now for the first time
  window.dispatchEvent(new CustomEvent("foretoken:want", { detail: window.foretokenWanted }));
}

function drawTable() {
  const shown = table(), heads = document.createElement("tr");
  shown.columns.forEach((name, i) => {
    const th = document.createElement("th"), button = Object.assign(document.createElement("button"), { type: "button", textContent: name });
    th.scope = "col";
    th.className = shown.numeric[i] ? "" : "text";
    const turn = sorted?.[0] === i ? sorted[1] : 0;
    th.setAttribute("aria-sort", { 1: "ascending", "-1": "descending", 0: "none" }[turn]);
    button.addEventListener("click", () => { sorted = [i, turn === -1 ? 1 : -1]; drawTable(); });
    th.append(button);
    heads.append(th);
  });
  if (shown.axes) heads.append(Object.assign(document.createElement("th"), { scope: "col", className: "text" }));
  head.replaceChildren(heads);
  const rows = sorted ? [...shown.rows].sort((a, b) => sorted[1] * (a.order[sorted[0]] > b.order[sorted[0]] ? 1 : -1)) : shown.rows;
  body.replaceChildren(...rows.map(line));
  tell();
}

function line(row) {
  const tr = document.createElement("tr"), shown = table(), { point } = row;
  tr.dataset.title = point?.title || "";
  row.cells.forEach((text, i) => {
    const td = document.createElement("td");
    td.className = shown.numeric[i] ? "" : "text";
    if (point && shown.columns[i] === "Exact") td.append(Object.assign(document.createElement("span"), { className: "ft-badge", textContent: text }));
    else if (point) { // a median, and its quartiles in small print
      const [middle, ...rest] = text.split(" (");
      td.textContent = i ? middle : text;
      if (i && rest.length) td.append(Object.assign(document.createElement("small"), { textContent: ` (${rest.join(" (")}` }));
    } else td.textContent = text;
    if (point && shown.columns[i] === "Exact") td.firstChild.dataset.exact = text === "exact";
    if (i === 0 && point?.knobs) td.title = point.knobs;
    tr.append(td);
  });
  if (!shown.axes) return tr;
  const last = document.createElement("td");
  if (point.settings) {
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: "Load" });
    button.setAttribute("aria-label", `Load ${point.title} into the ${TABS[shown.kind]} tab`);
    button.addEventListener("click", () => loads(point));
    last.append(button);
  }
  tr.append(last);
  tr.addEventListener("pointerenter", () => { at = points().indexOf(point); redraw(); });
  return tr;
}

function choose() {
  at = sorted = null;
  const shown = table();
  if (!shown) return;
  card.dataset.table = shown.name;
  card.querySelector(".ft-about-chart").textContent = shown.about;
  card.querySelector(".ft-good").textContent = shown.axes?.good || "";
  card.dataset.points = points().length;
  const colour = (name) => `var(--ft-${name})`; // of the theme that is shown
  const marks = [["plain", "plain", "square"], ["exact", "good", "dot"], ["relaxed", "bad", "diamond"]];
  legend.replaceChildren(...(shown.axes ? [...marks.map(([group, name, kind]) => swatch(colour(name), NAMES[group], kind)),
    swatch(colour("muted"), "bar: 95 % interval over inputs", "stroke"), swatch(colour("line-strong"), "nothing is better in both", "stroke")] : []));
  drawTable();
  redraw();
}

function draw() {
  const before = select.value, found = all();
  card.dataset.state = found.length ? "done" : "empty";
  select.replaceChildren(...found.map((each) => new Option(each.title, each.name)));
  select.value = props.value && card.dataset.here !== props.value.id ? HERE : before || found[0]?.name;
  if (props.value) card.dataset.here = props.value.id;
  const kept = at;
  choose();
  at = kept !== null && kept < points().length ? kept : null;
  redraw();
}

const near = (event) => {
  const frame = canvas.getBoundingClientRect(), x = event.clientX - frame.left, y = event.clientY - frame.top;
  const found = places.map((spot, i) => [Math.hypot(spot.x - x, spot.y - y), i]).sort((a, b) => a[0] - b[0])[0];
  return found && found[0] < 22 ? found[1] : null;
};
canvas.addEventListener("pointermove", (event) => {
  const found = near(event);
  canvas.style.cursor = found === null ? "" : "pointer";
  if (found === at || found === null) return;
  at = found;
  redraw();
});
canvas.addEventListener("click", (event) => loads(points()[near(event)]));
load.addEventListener("click", () => loads(points()[at]));
select.addEventListener("change", choose);
(element.closest("[role=tabpanel]") || window).addEventListener("foretoken:kind", ({ detail }) => { // shows a table of what is to be measured
  const found = all().find((each) => each.kind === detail);
  if (!found || table().kind === detail) return;
  select.value = found.name;
  choose();
});
describe = readable(canvas, () => `Plane of speed and fidelity with ${points().length} settings`, {
  count: () => points().length, at: () => at, go: (to) => { at = to; redraw(); }, say: (i) => say(points()[i]), act: (i) => loads(points()[i]),
});
exports(card.querySelector("header"), () => {
  const shown = table(), box = canvas.getBoundingClientRect();
  const figures = shown.axes ? [{ title: "", width: Math.max(640, box.width), height: 420, draw: (page) => drawPlane(page, null) }] : [];
  const knobs = Object.fromEntries(points().filter((p) => p.knobs).map((p) => [p.title, p.knobs]));
  const rows = [[...shown.columns, "Knobs"], ...shown.rows.map((row) => [...row.cells, row.point?.knobs || ""])];
  return { name: `bench-${shown.name}`, title: shown.title, figures, rows, made: shown.made, more: knobs };
});
follow([canvas], redraw);
watch("value", draw);
draw();
