// Chart of speed against fidelity, one point per setting, and its table. Draws tables from app/ui/tabs/bench_rows.py.
const TABLES = __TABLES__, HERE = __HERE__;
const card = element.querySelector(".ft-plane"), output = card.querySelector("output");
const select = card.querySelector(".ft-which select"), load = card.querySelector("[data-do=load]");
const head = card.querySelector("thead"), body = card.querySelector("tbody");
const MARKS = { plain: ["square", "plain"], exact: ["circle", "good"], relaxed: ["diamond", "bad"] }; // shape and colour
const NAMES = { plain: "plain decoding", exact: "exact: the same distribution", relaxed: "relaxed: another distribution" };
const TABS = { image: "Image", mesh: "Mesh" };
let sorted = null; // [column, direction]
let current = null; // the chosen table

const all = () => [...TABLES, ...(props.value ? [{ ...props.value, name: HERE }] : [])];
const table = () => current;
const points = () => (table()?.rows || []).map((row) => row.point).filter((point) => point?.x).sort((a, b) => a.x - b.x);
const signed = (number, digits) => number.toFixed(digits).replace("-", "−");
const digits = () => (table().kind === "image" ? 3 : 2);
const say = (p) => [p.title, `${p.x.toFixed(2)}× (${placeAt() < 0 ? "95 % interval" : "computed; quartiles"} ${p.interval[0].toFixed(2)} to ${p.interval[1].toFixed(2)})`,
  `${table().columns.at(-1).toLowerCase()} ${signed(p.y, digits())} (quartiles ${p.quartiles.map((q) => signed(q, digits())).join(" to ")})`,
  `${p.compressions[0].toFixed(2)} tokens per pass`, NAMES[p.group]];

// A table with speed-ups computed for the chosen place, and without the times that were measured here.
function computed(shown) {
  const at = placeAt(), speed = shown.columns.indexOf("Speed-up"), lost = shown.rows.filter((row) => !row.point.ratios).map((row) => row.point.title);
  const changed = (list, value) => list.with(speed, value).toSpliced(speed - 1, 1);
  const rows = shown.rows.map(({ cells, order, point }) => {
    const x = point.ratios?.[at], [middle, ...rest] = point.compressions, interval = rest.map((each) => (x * each) / middle);
    const text = x ? `${x.toFixed(2)}×${rest[0] < rest[1] ? ` (${interval.map((each) => each.toFixed(2)).join(" to ")})` : ""}` : "not recorded";
    return { cells: changed(cells, text), order: changed(order, x || 0), point: { ...point, x, interval } };
  });
  const full = shown.counted ? "" : ` Its rows per pass were not recorded: windows count as full${lost.length ? `, and ${lost.join(", ")} are left out` : ""}.`;
  return {
    ...shown, rows, columns: changed(shown.columns, "Computed speed-up"), numeric: changed(shown.numeric, true), axes: { ...shown.axes, x: axisTitle() },
    title: `${shown.title}; speed-up computed for ${machines.value}`, about: `Computed for ${machines.value}, not measured, from the passes of this table.${full}`,
  };
}

function rangeOf(values, least) {
  const low = Math.min(...values), high = Math.max(...values), room = Math.max(least, high - low) * 0.12;
  return [low - room, high + room];
}

// Points that no other point beats in both directions.
function frontier(found, better) {
  const sign = better === "up" ? 1 : -1;
  return found.filter((p) => !found.some((other) => other.x > p.x && other.y * sign >= p.y * sign)).sort((a, b) => a.x - b.x);
}

// Points whose names cover no other name or point; the best points first. across, up: pixels of a point
function labelledPoints(found, foremost, across, up) {
  const placed = [], near = (p, q, wide, low, high) => Math.abs(across(p) - across(q)) < wide && up(q) - up(p) > low && up(q) - up(p) < high;
  for (const p of [...foremost, ...found.filter((each) => !foremost.includes(each))]) {
    const half = (p.title.length * LETTER) / 2;
    if (found.some((q) => q !== p && near(p, q, half + 5, 2, LABEL + 6))) continue;
    if (!placed.some((q) => near(p, q, half + (q.title.length * LETTER) / 2, -LABEL, LABEL))) placed.push(p);
  }
  return placed;
}

function planeOf(page) {
  const shown = table(), found = points(), edge = shown?.axes ? frontier(found, shown.axes.better) : [], plain = found.find((p) => p.group === "plain" && p.x === 1);
  if (!shown?.axes) return null;
  const y = rangeOf(found.map((p) => p.y), 0.02), x = rangeOf([0.9, ...found.flatMap((p) => p.interval)], 0.2);
  const turn = shown.axes.better === "down" ? -1 : 1, across = (p) => ((p.x - x[0]) / (x[1] - x[0])) * (page.width - 60), up = (p) => turn * ((p.y - y[0]) / (y[1] - y[0])) * 350;
  const names = labelledPoints(found, [...edge, ...(plain ? [plain] : [])], across, up);
  const marks = (group) => {
    const own = found.filter((p) => p.group === group), [symbol, name] = MARKS[group], color = page[name];
    return {
      name: NAMES[group], mode: "markers+text", x: own.map((p) => p.x), y: own.map((p) => p.y), marker: { symbol, color, size: 9 }, textfont: { color: page.text, size: 11 }, textposition: "top center",
      text: own.map((p) => (names.includes(p) ? p.title : "")), customdata: own.map((p) => found.indexOf(p)), hovertext: own.map((p) => say(p).slice(0, 2).join("<br>")),
      error_x: { symmetric: false, array: own.map((p) => p.interval[1] - p.x), arrayminus: own.map((p) => p.x - p.interval[0]), thickness: 1.25, width: 0, color: `color-mix(in srgb, ${color} 45%, transparent)` },
    };
  };
  return {
    data: [
      { name: "best trade-offs", x: edge.map((p) => p.x), y: edge.map((p) => p.y), line: { color: page["line-strong"], width: 1.5 } },
      ...Object.keys(MARKS).map(marks), legendOnly(placeAt() < 0 ? "bar: 95 % range" : "bar: quartiles of tokens per pass", { line: { color: page.muted, width: 1.25 } }),
    ],
    layout: {
      xaxis: axis(page, { range: x, title: { text: shown.axes.x }, ticksuffix: "×" }),
      yaxis: axis(page, { range: turn < 0 ? y.toReversed() : y }),
      shapes: [
        { type: "rect", layer: "below", x0: 1, x1: x[1], yref: "paper", y0: 0, y1: 1, fillcolor: page.good, opacity: 0.07, line: { width: 0 } }, // faster than plain decoding
        upright(1, page["line-strong"]), ...(plain ? [level(plain.y, page.plain)] : []),
      ],
      annotations: [above(page, shown.axes.y), note("better ↗", page.good, { x: 1, y: 1, xanchor: "right", yanchor: "top" })],
    },
  };
}

function tell(at = plane.at()) {
  const point = points()[at];
  if (!point) output.textContent = "Point at a setting or use the arrow keys to inspect it. Click or press Enter to load it.";
  load.hidden = !point?.settings;
  load.textContent = `Load into the ${TABS[table()?.kind] || ""} tab`;
  for (const row of body.rows) row.dataset.chosen = Boolean(point) && row.dataset.title === point.title;
}

function redraw() {
  card.querySelector("figure").hidden = !table()?.axes;
  plane.draw();
  tell();
}

// Loads the settings of a point into its tab, once that tab is open.
function loads(point) {
  if (point?.settings) askFor(point.settings);
}

function drawTable() {
  const shown = table(), heads = node("tr");
  shown.columns.forEach((name, i) => {
    const th = node("th", "", { scope: "col", className: shown.numeric[i] ? "" : "text" }), turn = sorted?.[0] === i ? sorted[1] : 0;
    th.setAttribute("aria-sort", { 1: "ascending", "-1": "descending", 0: "none" }[turn]);
    th.append(node("button", name, { type: "button", onclick: () => { sorted = [i, turn === -1 ? 1 : -1]; drawTable(); } }));
    heads.append(th);
  });
  if (shown.axes) heads.append(node("th", "", { scope: "col", className: "text" }));
  head.replaceChildren(heads);
  const rows = sorted ? [...shown.rows].sort((a, b) => sorted[1] * (a.order[sorted[0]] > b.order[sorted[0]] ? 1 : -1)) : shown.rows;
  body.replaceChildren(...rows.map(line));
  tell();
}

function line(row) {
  const tr = node("tr"), shown = table(), { point } = row;
  tr.dataset.title = point?.title || "";
  row.cells.forEach((text, i) => {
    const td = node("td", "", { className: shown.numeric[i] ? "" : "text" }), isBadge = point && shown.columns[i] === "Exact";
    const [middle, ...rest] = point && i ? text.split(" (") : [text]; // median, with its quartiles in small print
    td.append(isBadge ? node("span", text, { className: "ft-badge" }) : middle);
    if (isBadge) td.firstChild.dataset.exact = text === "exact";
    else if (rest.length) td.append(node("small", ` (${rest.join(" (")}`));
    if (i === 0 && point?.knobs) td.title = point.knobs;
    tr.append(td);
  });
  if (!shown.axes) return tr;
  const last = node("td");
  if (point.settings) {
    const button = node("button", "Load", { type: "button", onclick: () => loads(point) });
    button.setAttribute("aria-label", `Load ${point.title} into the ${TABS[shown.kind]} tab`);
    last.append(button);
  }
  tr.append(last);
  if (point.x) tr.addEventListener("pointerenter", () => plane.go(points().indexOf(point)));
  return tr;
}

function choose() {
  sorted = null;
  current = all().find((each) => each.name === select.value) || all()[0];
  if (!current) return;
  offerPlaces(current.places);
  const shown = current = placeAt() < 0 ? current : computed(current);
  plane.go(null);
  card.dataset.table = shown.name;
  card.dataset.computed = placeAt() >= 0;
  card.querySelector(".ft-about-chart").textContent = shown.about;
  card.querySelector(".ft-good").textContent = shown.axes?.good || "";
  card.dataset.points = points().length;
  drawTable();
  redraw();
}

function draw() {
  const before = select.value, found = all(), kept = plane.at();
  card.dataset.state = found.length ? "done" : "empty";
  select.replaceChildren(...found.map((each) => new Option(each.title, each.name)));
  select.value = props.value && card.dataset.here !== props.value.id ? HERE : before || found[0]?.name;
  if (props.value) card.dataset.here = props.value.id;
  choose();
  if (kept !== null && kept < points().length) plane.go(kept);
}

const plane = plot(card, {
  figure: planeOf, stays: true, count: () => points().length, say: (i) => say(points()[i]), act: (i) => loads(points()[i]), went: tell,
  name: () => `Chart of speed and fidelity with ${points().length} settings`,
  file: () => {
    const shown = table(), knobs = Object.fromEntries(points().filter((p) => p.knobs).map((p) => [p.title, p.knobs]));
    const rows = [[...shown.columns, "Knobs"], ...shown.rows.map((row) => [...row.cells, row.point?.knobs || ""])];
    return { name: `bench-${shown.name}`, title: shown.title, rows, made: shown.made, more: knobs };
  },
});
load.addEventListener("click", () => loads(points()[plane.at()]));
for (const menu of [select, machines]) menu.addEventListener("change", choose);
(element.closest("[role=tabpanel]") || window).addEventListener("foretoken:kind", ({ detail }) => { // shows a table of the kind to be measured
  const found = all().find((each) => each.kind === detail);
  if (!found || table().kind === detail) return;
  select.value = found.name;
  choose();
});
watch("value", draw);
draw();
