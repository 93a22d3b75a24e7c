// The stage of the Lab tab. Draws values from app/ui/panels/lab.py; keeps the snapshots A and B in the browser.
const box = element.querySelector(".ft-lab");
const picture = box.querySelector(".ft-lab-canvas"), film = box.querySelector(".ft-film"), shelf = box.querySelector(".ft-snapshots");
const NAMES = ["A", "B"];
const kept = {}; // snapshots: name -> a setting
let shown = {}; // arrays of the value
let asked = 0;

const value = () => props.value || {};
const settings = () => value().settings || [];
const setting = (number) => settings().find((each) => each.number === number);
const current = () => setting(value().now);
const whole = (number) => number.toLocaleString("en", { maximumFractionDigits: number < 10 ? 1 : 0 });
const inWords = (deviation) => (deviation === null ? "not measured" : deviation === 0 ? "0" : deviation.toFixed(4));
const nameOf = (each) => each.title + (each.changed ? `, ${each.changed}` : "");
const speedOf = (each) => (placeAt() < 0 ? each.speed : each.ratios?.[placeAt()] ?? NaN); // measured tokens / s, or a computed speed-up
const sayOf = (each) => [nameOf(each), placeAt() < 0 ? `${whole(each.speed)} tokens / s` : `${speedOf(each).toFixed(2)}× plain, computed`, `${each.compression.toFixed(2)} tokens / pass`,
  each.exact ? "exact" : `deviation ${inWords(each.deviation)}`, `${whole(each.passes)} passes`];
const tagOf = (number) => NAMES.filter((name) => kept[name]?.number === number && kept[name].id === value().id).join(" ");

async function drawPicture() {
  const { picture: address } = value();
  if (!address) return;
  const mine = ++asked, bitmap = await bitmapOf(address);
  if (mine !== asked) return;
  picture.width = bitmap.width;
  picture.height = bitmap.height;
  picture.getContext("2d").drawImage(bitmap, 0, 0);
  picture.setAttribute("aria-label", `The picture in progress: ${value().prompt}`);
}

function drawNumbers() {
  const v = value(), now = current(), put = (key, text) => { box.querySelector(`[data-key=${key}] dd`).textContent = text; };
  const status = v.example || (now ? nameOf(now) : v.text || "");
  const line = box.querySelector(".ft-lab-now");
  if (line.textContent !== status) line.textContent = status;
  box.querySelector(".ft-empty").textContent = v.settings ? "" : v.state === "running" ? "" : "The picture grows here.";
  put("tokens_per_second", now ? whole(now.speed) : "–");
  put("speedup", !now ? "–" : placeAt() >= 0 ? `${speedOf(now).toFixed(2)}×` : v.plain ? `${(now.speed / v.plain).toFixed(2)}×` : "–");
  box.querySelector("[data-key=speedup] dt").textContent = placeAt() < 0 ? "× plain" : "× plain, computed";
  put("compression", now ? now.compression.toFixed(2) : "–");
  put("deviation", now ? (now.exact ? "0" : now.deviation === null ? "?" : now.deviation.toFixed(3)) : "–");
  put("pictures", v.settings ? String(v.pictures) : "–");
  box.querySelector("[data-key=pictures] dt").textContent = box.dataset.kind === "mesh" ? "meshes" : "pictures";
}

function drawFilm() {
  const found = value().film || [], here = [...film.children].map((each) => each.dataset.number).join();
  if (found.map((each) => each.number).join() === here) return;
  film.replaceChildren(...found.map((each) => {
    const image = Object.assign(new Image(56, 56), { src: each.picture, alt: `Picture ${each.number}: ${each.text}`, title: each.text });
    image.dataset.number = each.number;
    image.setAttribute("role", "listitem");
    return image;
  }));
}

// --- over time ---------------------------------------------------------------------------------------------------------

const spanOf = (values, least) => Math.max(least, ...[...values].filter((x) => !Number.isNaN(x)));

function courseOf(page) {
  if (!shown.time) return null;
  const v = value(), { time, speed, deviation } = shown, end = Math.max(4, v.clock || 0), x = [...time], unmeasured = [...deviation].every(Number.isNaN);
  const turned = turnsOf(page, end), plain = v.plain ? [level(v.plain, page.plain)] : [];
  const notes = v.plain ? [note("plain decoding", page.plain, { x: 1, xanchor: "right", y: v.plain, yref: "y", yanchor: "bottom", bgcolor: page.page, yshift: 2 })] : [];
  if (unmeasured) notes.push(note("This method does not measure deviation.", page.muted, { x: 0.02, y: 0.2, xanchor: "left" }));
  return {
    data: [
      { name: "speed", x, y: [...speed], customdata: x.map((_, i) => i), hovertext: x.map((_, i) => sayCourse(i).join("<br>")), line: { color: page.fast, width: 2 } },
      { name: "deviation; exact methods have none", x, y: [...deviation], yaxis: "y2", mode: "lines+markers", connectgaps: true, line: { color: page.bad, width: 2 }, marker: { size: 4 } },
      legendOnly("a knob was moved", { line: { color: page.accent, width: 1, dash: "dash" } }),
    ],
    layout: {
      hovermode: "x", margin: { l: 46, r: 14, t: 64, b: 40 },
      xaxis: axis(page, { range: [0, end], title: { text: "Time on the clock (s)" }, anchor: "y2" }),
      yaxis: axis(page, { range: [0, spanOf([...speed, v.plain || 0], 10) * 1.1], domain: [0.57, 1], nticks: 5 }),
      yaxis2: axis(page, { range: [0, spanOf(deviation, 0.05) * 1.15], domain: [0, 0.43], nticks: 5 }),
      shapes: [...turned.shapes, ...plain],
      annotations: [above(page, "Speed (tokens / s)"), above(page, "Deviation (total variation distance, 0 to 1)", 0.43), ...turned.annotations, ...notes],
    },
  };
}

// A line where a knob moved; moves during a drag share a label.
function turnsOf(page, end) {
  const groups = [], moves = value().turned || [];
  for (const { time, letter, before, after } of moves) {
    const group = groups.findLast((each) => each.letter === letter);
    if (group && time - group.end < 70 * (end / page.width)) Object.assign(group, { after, end: time });
    else groups.push({ letter, before, after, at: time, end: time });
  }
  const free = [-Infinity, -Infinity], annotations = []; // of the two rows of labels
  for (const { letter, before, after, at } of groups) {
    const text = `${letter} ${before} → ${after}`.trim(), row = free.findIndex((until) => until < at);
    if (row < 0) continue; // no room; shown when pointing at the line
    annotations.push(note(text, page.accent, { x: at, xref: "x", y: 1, xanchor: at > 0.85 * end ? "right" : "left", yanchor: "bottom", yshift: 28 - 14 * row }));
    free[row] = at + (text.length * LETTER + 8) * (end / page.width);
  }
  return { shapes: moves.map(({ time }) => upright(time, page.accent)), annotations };
}

// Knobs moved during a sample.
function movedIn(i) {
  const from = i ? shown.time[i - 1] : -1, found = (value().turned || []).filter(({ time }) => time >= from && time < shown.time[i]);
  return found.map(({ letter, before, after }) => `${letter} ${before} → ${after}`.trim());
}

const sayCourse = (i) => [`${shown.time[i].toFixed(1)} s`, `${whole(shown.speed[i])} tokens / s`, `${shown.compression[i].toFixed(2)} tokens / pass`,
  Number.isNaN(shown.deviation[i]) ? "deviation not measured here" : `deviation ${inWords(shown.deviation[i])}`, ...movedIn(i)];

// --- speed against deviation -------------------------------------------------------------------------------------------

const dots = () => settings().filter((each) => each.counts && each.deviation !== null).sort((a, b) => speedOf(a) - speedOf(b));

function curveOf(page) {
  if (!shown.time) return null;
  const found = dots(), v = value(), plain = placeAt() < 0 ? v.plain : 1, path = (v.curve || []).map(setting).filter((each) => each && found.includes(each));
  const points = (name, exact, symbol, color) => {
    const own = found.filter((each) => each.exact === exact), isNow = (each) => each.number === v.now;
    return {
      name, mode: "markers+text", x: own.map(speedOf), y: own.map((each) => each.deviation), text: own.map((each) => tagOf(each.number)), textposition: "top center",
      customdata: own.map((each) => found.indexOf(each)), hovertext: own.map((each) => sayOf(each).join("<br>").replace(/(.{24,}?), /g, "$1,<br>")), textfont: { color: page.text }, cliponaxis: false,
      marker: { symbol, color, opacity: 1, size: own.map((each) => (isNow(each) ? 13 : 9)), line: { color: page.text, width: own.map((each) => (isNow(each) ? 1.5 : 0)) } },
    };
  };
  return {
    data: [
      { name: "the moved knob's values", x: path.map(speedOf), y: path.map((each) => each.deviation), line: { color: page["line-strong"], width: 1.5 } },
      points("exact", true, "circle", page.good), points("relaxed", false, "diamond", page.bad),
    ],
    layout: {
      xaxis: axis(page, { title: { text: axisTitle("Speed (tokens / s)") }, range: [0, Math.max(placeAt() < 0 ? 10 : 1, plain || 0, ...found.map(speedOf)) * 1.08] }),
      yaxis: axis(page, { range: [-0.001, Math.max(0.02, ...found.map((each) => each.deviation)) * 1.15] }),
      shapes: plain ? [upright(plain, page.plain)] : [],
      annotations: [above(page, "Deviation (total variation distance; 0 is exact)"), note("better ↘", page.good, { x: 1, y: 1, xanchor: "right", yanchor: "top" }),
        ...(plain ? [note("plain", page.plain, { x: plain, xref: "x", y: 1, xanchor: "left", yanchor: "top" })] : [])],
    },
  };
}

// --- acceptance by place -----------------------------------------------------------------------------------------------

function placesOf(page) {
  const now = current(), shares = now?.shares || [];
  if (!now) return null;
  const count = Math.max(4, shares.length), places = (list) => list.map((_, i) => i + 1);
  const lines = NAMES.map((name) => ({
    name: `snapshot ${name}`, x: places(kept[name]?.shares || []), y: kept[name]?.shares || [], visible: Boolean(kept[name]),
    line: { color: { A: page.plain, B: page.fast }[name], width: 2, dash: name === "A" ? "dash" : "solid" },
  }));
  const ceiling = now.most ? [note(`accepted per pass ${now.most[0].toFixed(2)}, exact rules at most ${now.most[1].toFixed(2)}`, page.muted, { x: 1, y: 1, xanchor: "right", yanchor: "top", bgcolor: page.page })] : [];
  const orderless = !shares.length && now.passes > 2 ? [note(`${now.title} does not accept drafts in order.`, page.muted, { x: 0.5, y: 0.5 })] : [];
  return {
    data: [
      { type: "bar", name: "these knobs", x: places(shares), y: shares, customdata: shares.map((_, i) => i), hovertext: shares.map((_, i) => sayPlace(i).join("<br>")), textposition: "none", marker: { color: page.accent }, width: 0.72 },
      ...lines,
    ],
    layout: {
      xaxis: axis(page, { title: { text: "Place in the draft (1 = next token)" }, range: [0.5, count + 0.5], dtick: count > 10 ? 2 : 1, tick0: 1 }),
      yaxis: axis(page, { range: [0, 1], tickformat: ".0%", dtick: 0.25 }),
      annotations: [above(page, "Accepted share of drafts reached"), ...ceiling, ...orderless],
    },
  };
}

const sayPlace = (i) => [`place ${i + 1}`, `${(100 * current().shares[i]).toFixed(1)} % of ${whole(current().reached[i])} drafts accepted`];

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
  emit("want", { panel: "lab-wanted", value: { name: method, knobs, number: Date.now() } });
}

function drawSnapshots() {
  for (const name of NAMES) { // of this loop: updates the measurements
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
      take.title = `Restore snapshot ${name} (key ${name})`;
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
    line.querySelector("span").textContent = found ? sayOf(found).join(" · ") : `Snapshot ${line.dataset.snapshot} is empty.`;
  }
}

// --- stage -----------------------------------------------------------------------------------------------------------

const CHARTS = {
  course: { figure: courseOf, height: 480, count: () => shown.time?.length || 0, say: sayCourse },
  curve: { figure: curveOf, count: () => dots().length, say: (i) => sayOf(dots()[i]) },
  places: { figure: placesOf, count: () => current()?.shares.length || 0, say: sayPlace },
};

function redraw() {
  for (const each of Object.values(plots)) each.draw();
  drawSnapshots();
}

function draw() {
  const v = value();
  box.dataset.state = v.state || "empty";
  box.dataset.kind = v.kind || box.dataset.kind || "image";
  box.dataset.example = Boolean(v.example);
  box.dataset.settings = settings().length;
  box.dataset.turned = (v.turned || []).length;
  box.dataset.pictures = v.pictures || 0;
  for (const card of box.querySelectorAll(".ft-chart")) card.dataset.state = v.settings ? v.state : "empty";
  offerPlaces(v.places);
  box.dataset.computed = placeAt() >= 0;
  shown = v.settings ? Object.fromEntries(["time", "speed", "compression", "deviation"].map((name) => [name, numbers(v[name], Float32Array)])) : {};
  drawNumbers();
  drawFilm();
  drawPicture();
  redraw();
  emit("running", v.state === "running", scope);
}

const rows = {
  course: () => [["seconds", "tokens_per_second", "tokens_per_pass", "deviation"], ...Array.from(shown.time, (t, i) => [t, shown.speed[i], shown.compression[i], shown.deviation[i]].map((n) => (Number.isNaN(n) ? "" : +n.toFixed(5))))],
  curve: () => [["method", "knobs", "exact", placeAt() < 0 ? "tokens_per_second" : axisTitle(), "tokens_per_pass", "deviation", "passes"], ...settings().map((s) => [s.title, Object.entries(s.knobs).map(([k, v]) => `${k} ${v}`).join("; "), String(s.exact), +speedOf(s).toFixed(3), +s.compression.toFixed(4), s.deviation === null ? "" : +s.deviation.toFixed(6), s.passes])],
  places: () => [["place", "accepted_share", "reached"], ...current().shares.map((share, i) => [i + 1, share, current().reached[i]])],
};
const plots = Object.fromEntries(Object.entries(CHARTS).map(([name, chart]) => {
  const card = box.querySelector(`[data-chart=${name}]`), title = card.querySelector("h3").textContent;
  const file = () => ({
    name: `lab-${name}`, title: `${title}: ${nameOf(current())}`, rows: rows[name](), height: chart.height,
    made: { method: current().title, knobs: Object.entries(current().knobs).map(([k, v]) => `${k} ${v}`).join(", "), ...value().made },
  });
  return [name, plot(card, { ...chart, name: () => `${title}, ${chart.count()} entries`, file })];
}));
document.addEventListener("keydown", (event) => { // A and B swap the snapshots while the tab is open
  const name = event.key.toUpperCase();
  if (!NAMES.includes(name) || event.ctrlKey || event.metaKey || event.altKey || !element.offsetParent) return;
  if (event.target.closest("input:not([type=range]), textarea, select, [contenteditable]")) return;
  back(name);
});
machines.addEventListener("change", draw);
watch("value", draw);
draw();
