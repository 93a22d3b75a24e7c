// Distribution at one place of the accelerated picture. Draws values from app/ui/panels/odds.py.
const card = element.querySelector(".ft-odds"), canvas = card.querySelector("canvas"), output = card.querySelector("output");
let shown = {}; // arrays of the value
let at = null; // position under the pointer
let announcePlace = () => {};

// Bars of a place: the most probable tokens, the drawn one if not among them, and the rest.
function barsOf(place) {
  const { top } = props.value, own = shown.own[place];
  const bars = Array.from({ length: top }, (_, i) => ({ token: shown.tokens[place * top + i], p: shown.p[place * top + i] })).filter(({ p }) => p > 0);
  if (!bars.some(({ token }) => token === own)) bars.push({ token: own, p: shown.drawn[place] });
  const rest = Math.max(0, 1 - bars.reduce((sum, { p }) => sum + p, 0));
  return [...bars.map((bar) => ({ ...bar, own: bar.token === own })), { token: null, p: rest, own: false }];
}

const nameOf = ({ token }) => (token === null ? "all others" : `token ${token}`);
const where = (place) => `row ${Math.floor(place / props.value.columns) + 1}, column ${(place % props.value.columns) + 1}`;
const say = (place) => `${where(place)}: ${barsOf(place).map((bar) => `${nameOf(bar)}${bar.own ? " (drawn)" : ""} ${bar.p.toFixed(3)}`).join(", ")}`;

function drawOdds(page, place = at ?? 0) {
  const { pen, width, height } = page, bars = barsOf(place), box = { left: 150, right: width - 60, top: 8, bottom: height - 38 };
  const [across] = axes(page, box, { range: [0, 1], title: "Probability (0 to 1)", ticks: [0, 0.25, 0.5, 0.75, 1] }, { range: [0, 1], ticks: [], text: () => "" });
  const row = (box.bottom - box.top) / (props.value.top + 2), side = Math.min(24, Math.floor(row) - 4);
  bars.forEach((bar, i) => {
    const y = box.top + (i + 0.5) * row, index = bar.token === null ? -1 : shown.order.get(bar.token);
    if (patches.image && index >= 0) {
      drawPatch(pen, index, box.left - side - 8, y - side / 2, side);
      if (bar.own) {
        pen.strokeStyle = page.text;
        pen.lineWidth = 2;
        pen.strokeRect(box.left - side - 9, y - side / 2 - 1, side + 2, side + 2);
      }
    }
    write(pen, `${nameOf(bar)}${bar.own ? ", drawn" : ""}`, box.left - side - 16, y, bar.own ? page.text : page.muted, "right");
    pen.fillStyle = bar.own ? page.fast : bar.token === null ? page["line-strong"] : page.accent;
    pen.fillRect(box.left, y - row * 0.32, Math.max(1, across(bar.p) - box.left), row * 0.64);
    write(pen, bar.p.toFixed(3), across(bar.p) + 6, y, page.text);
  });
}

function redraw() {
  if (props.value?.state !== "done") return;
  if (canvas.getBoundingClientRect().width) drawOdds(sheet(canvas));
  output.textContent = at === null ? "The first place. Point at the picture to choose another." : where(at);
  announcePlace();
}

function draw() {
  const v = props.value;
  if (!v) return;
  card.dataset.state = v.state;
  card.querySelector(".ft-about-chart").textContent = v.about;
  at = null;
  if (v.state !== "done") return;
  for (const name of ["tokens", "own", "known"]) shown[name] = numbers(v[name], Int32Array);
  for (const name of ["p", "drawn"]) shown[name] = numbers(v[name], Float32Array);
  shown.order = new Map(Array.from(shown.known, (token, i) => [token, i]));
  decodePatches(v.sheet, redraw);
  redraw();
}

window.addEventListener("foretoken:point", ({ detail }) => {
  if (detail === null || props.value?.state !== "done" || detail >= shown.own.length || !element.offsetParent) return; // keeps the last place
  at = detail;
  redraw();
});
announcePlace = readable(canvas, () => "What the model could have drawn here", {
  count: () => (props.value?.state === "done" ? shown.own.length : 0), at: () => at, say,
  go: (to) => { at = to; emit("point", to); redraw(); },
});
exports(card.querySelector("header"), () => {
  const v = props.value, place = at ?? 0, { top } = v;
  const heads = ["row", "column", "drawn_token", "drawn_p", ...Array.from({ length: top }, (_, i) => [`token_${i + 1}`, `p_${i + 1}`]).flat()];
  const line = (i) => [Math.floor(i / v.columns) + 1, (i % v.columns) + 1, shown.own[i], +shown.drawn[i].toFixed(6), ...Array.from({ length: top }, (_, k) => [shown.tokens[i * top + k], +shown.p[i * top + k].toFixed(6)]).flat()];
  return {
    name: "distribution", title: `What the model could have drawn at ${where(place)}: ${v.title}`, made: v.made,
    figures: [{ title: v.about, width: 640, height: 260, draw: (page) => drawOdds(page, place) }],
    rows: [heads, ...Array.from(shown.own, (_, i) => line(i))],
  };
});
follow([canvas], redraw);
watch("value", draw);
draw();
