// The trace of the accelerated run. Draws the value that app/ui/panels/trace.py encodes.
__CHART__
const VERDICTS = __VERDICTS__;
const ACCEPTED = 3, REJECTED = 2, REDRAWN = 4; // in VERDICTS
const card = element.querySelector(".ft-chart"), output = card.querySelector("output"), legend = card.querySelector(".ft-legend");
const [run, last] = ["run", "last"].map((name) => card.querySelector(`[data-chart=${name}]`));
const [course, pass] = [run, last].map((figure) => figure.querySelector("canvas"));
const LEFT = 34, RIGHT = 8, NEAR = 84; // pixels; moves of a knob closer than NEAR share a label
let shown = {}; // the arrays of the value
const scope = element.closest("[role=tabpanel]") || window;
let at = null; // the token that is pointed at, in the order of commitment

// The ends of the energy axis: they enclose nearly all energies, and zero.
function ends(energies, thresholds) {
  const known = [...energies, ...thresholds].filter((e) => !Number.isNaN(e)).sort((a, b) => a - b);
  if (!known.length) return [-4, 1];
  const low = known[Math.floor(known.length * 0.02)], high = known[Math.ceil(known.length * 0.98) - 1];
  return [Math.floor(Math.min(low, -2)), Math.ceil(Math.max(high, 1))];
}

const inside = (value, [low, high]) => Math.min(high, Math.max(low, value));

// Marks of drafts: a dot if accepted, a cross if rejected, so that they can be told apart without colours.
function mark(pen, x, y, verdict, faint = false) {
  pen.globalAlpha = faint ? 0.35 : 1;
  pen.beginPath();
  if (verdict === REJECTED || verdict === REDRAWN) {
    pen.moveTo(x - 2.5, y - 2.5);
    pen.lineTo(x + 2.5, y + 2.5);
    pen.moveTo(x + 2.5, y - 2.5);
    pen.lineTo(x - 2.5, y + 2.5);
    pen.strokeStyle = css(VERDICTS[verdict].colour);
    pen.lineWidth = 1.5;
    pen.stroke();
  } else {
    pen.arc(x, y, 2.1, 0, 7);
    pen.fillStyle = css(VERDICTS[ACCEPTED].colour);
    pen.fill();
  }
  pen.globalAlpha = 1;
}

function axis(page, [low, high], top, bottom, ticks) {
  for (const tick of ticks) {
    const y = bottom - ((tick - low) / (high - low)) * (bottom - top);
    trail(page.pen, [[LEFT, y], [page.width - RIGHT, y]], page.line, { width: 1 });
    write(page.pen, String(tick), LEFT - 6, y, page.muted, "right");
  }
}

function ladder([low, high]) { // ticks of an energy axis, including zero
  const step = Math.max(1, Math.round((high - low) / 4)), first = Math.ceil(low / step);
  return Array.from({ length: Math.floor(high / step) - first + 1 }, (_, i) => (first + i) * step);
}

function drawMoves(page, placeOf) {
  const groups = [];
  for (const move of props.value.moves) {
    const x = placeOf(move.token) - 0.5, group = groups.findLast((g) => g.letter === move.letter);
    if (group && x - group.end < NEAR) Object.assign(group, { after: move.after, end: x });
    else groups.push({ ...move, x, end: x });
    trail(page.pen, [[x, 16], [x, page.height - 4]], page.fast, { dash: [3, 3], width: 1 });
  }
  let row = 0, free = -Infinity;
  for (const { letter, before, after, x } of groups) {
    const text = `${letter} ${before} → ${after}`, wide = page.pen.measureText(text).width;
    row = x < free ? 1 - row : 0;
    const from = Math.min(x + 3, page.width - RIGHT - wide);
    write(page.pen, text, from, 7 + 12 * row, page.fast);
    free = from + wide + 8;
  }
}

function drawCourse() {
  const v = props.value, page = sheet(course), { pen, width, height } = page, s = shown;
  if (!width || !s.verdict) return;
  const placeOf = (i) => LEFT + ((i + 0.5) / v.limit) * (width - LEFT - RIGHT);
  const upper = [v.moves.length ? 30 : 12, height * 0.58], lower = [height * 0.58 + 22, height - 8];
  const energies = s.energy.length > 0, range = energies ? ends(s.energy, s.threshold) : [0, 1];
  const heightOf = (value, [low, high], [top, bottom]) => bottom - ((inside(value, [low, high]) - low) / (high - low)) * (bottom - top);
  axis(page, range, ...upper, energies ? ladder(range) : [0, 0.5, 1]);
  if (energies) trail(pen, Array.from(s.threshold, (t, i) => Number.isNaN(t) ? null : [placeOf(i), heightOf(t, range, upper)]), page.plain);
  const height1 = energies ? s.energy : s.chance;
  const half = Math.max(1, (width - LEFT - RIGHT) / v.limit);
  s.verdict.forEach((verdict, i) => {
    pen.fillStyle = css(VERDICTS[verdict].colour);
    pen.fillRect(placeOf(i) - half / 2, upper[1] + 6, half, 4); // what became of every token
    if (!Number.isNaN(height1[i])) mark(pen, placeOf(i), heightOf(height1[i], range, upper), verdict);
  });
  const most = Math.max(1, Math.ceil(s.entropy.reduce((a, b) => (b > a ? b : a), 0)));
  axis(page, [0, most], ...lower, [0, most]);
  trail(pen, Array.from(s.entropy, (e, i) => Number.isNaN(e) ? null : [placeOf(i), heightOf(e, [0, most], lower)]), page.muted);
  drawMoves(page, placeOf);
  if (at !== null) trail(pen, [[placeOf(at), upper[0]], [placeOf(at), height - 4]], page.text, { width: 1 });
}

function drawPass() {
  const v = props.value;
  last.hidden = !v.last;
  if (!v.last) return;
  const page = sheet(pass), { pen, width, height } = page;
  if (!width) return;
  const energy = numbers(v.last.energy, Float32Array), threshold = numbers(v.last.threshold, Float32Array);
  const range = ends(shown.energy, [...threshold, ...energy]), top = 12, bottom = height - 22;
  const count = Math.max(8, v.last.drafts), placeOf = (i) => LEFT + ((i + 0.5) / count) * (width - LEFT - RIGHT);
  const heightOf = (value) => bottom - ((inside(value, range) - range[0]) / (range[1] - range[0])) * (bottom - top);
  pen.fillStyle = css(VERDICTS[ACCEPTED].colour);
  pen.globalAlpha = 0.16;
  pen.fillRect(LEFT, top - 4, (v.last.accepted / count) * (width - LEFT - RIGHT), bottom - top + 8);
  pen.globalAlpha = 1;
  axis(page, range, top, bottom, ladder(range));
  trail(pen, Array.from(threshold, (t, i) => [placeOf(i), heightOf(t)]), page.plain);
  energy.forEach((e, i) => mark(pen, placeOf(i), heightOf(e), e >= threshold[i] ? ACCEPTED : REJECTED, i > v.last.accepted));
  write(pen, "1", placeOf(0), height - 9, page.muted, "center");
  write(pen, String(count), placeOf(count - 1), height - 9, page.muted, "center");
  last.querySelector("figcaption").textContent = `Newest pass: ${v.last.accepted} of ${v.last.drafts} drafts accepted (shaded)`;
  pass.setAttribute("aria-label", last.querySelector("figcaption").textContent);
}

function drawLegend() {
  const v = props.value, colours = getComputedStyle(card), muted = colours.getPropertyValue("--ft-muted");
  const marks = [swatch(css(VERDICTS[ACCEPTED].colour), "accepted", "dot"), swatch(css(VERDICTS[REJECTED].colour), "rejected", "cross")];
  if (shown.verdict?.includes(REDRAWN)) marks.push(swatch(css(VERDICTS[REDRAWN].colour), VERDICTS[REDRAWN].name, "cross"));
  if (shown.energy?.length) marks.push(swatch(colours.getPropertyValue("--ft-plain"), "threshold", "stroke"));
  marks.push(swatch(muted, "uncertainty (entropy, in nats)", "stroke"));
  if (v.moves?.length) marks.push(swatch(colours.getPropertyValue("--ft-fast"), "a knob was moved", "stroke"));
  legend.replaceChildren(...(v.state === "empty" ? [] : marks));
}

function tell() {
  const v = props.value, s = shown;
  if (at === null || !s.verdict) {
    output.textContent = v.deviation || "";
    return;
  }
  const said = [`number ${at + 1} of ${v.limit}`, VERDICTS[s.verdict[at]].name];
  if (!Number.isNaN(s.chance[at])) said.push(`probability ${s.chance[at].toFixed(2)}`);
  if (s.energy.length && !Number.isNaN(s.energy[at])) said.push(`energy ${s.energy[at].toFixed(2)}, threshold ${s.threshold[at].toFixed(2)}`);
  if (!Number.isNaN(s.entropy[at])) said.push(`entropy ${s.entropy[at].toFixed(2)}`);
  output.textContent = [...said, `step ${s.step[at] + 1}`].join(" · ");
}

function redraw() {
  drawCourse();
  drawPass();
  tell();
}

let upto = Infinity; // tokens that a replay shows

function draw() {
  const v = props.value;
  if (!v) return;
  card.dataset.state = v.state;
  card.querySelector(".ft-about-chart").textContent = v.about;
  shown = {};
  if (v.state !== "empty") {
    const kinds = { verdict: Uint8Array, position: Int32Array, step: Int32Array };
    for (const name of ["verdict", "position", "step", "chance", "entropy", "energy", "threshold"]) {
      shown[name] = numbers(v[name], kinds[name] || Float32Array).subarray(0, upto);
    }
    shown.order = new Map(Array.from(shown.position, (position, i) => [position, i]));
    course.setAttribute("aria-label", `Trace of ${shown.verdict.length} of ${v.limit} tokens, ${v.moves.length} knobs moved`);
    run.querySelector("figcaption").textContent = "Tokens in the order in which they were committed";
  }
  card.dataset.tokens = shown.verdict?.length || 0;
  card.dataset.moves = v.moves?.length || 0;
  if (at >= card.dataset.tokens) at = null;
  drawLegend();
  redraw();
}

course.addEventListener("pointermove", (event) => {
  const box = course.getBoundingClientRect(), v = props.value;
  const i = Math.floor(((event.clientX - box.left - LEFT) / (box.width - LEFT - RIGHT)) * v.limit);
  const position = shown.position?.[i];
  window.dispatchEvent(new CustomEvent("foretoken:point", { detail: position === undefined ? null : position }));
});
course.addEventListener("pointerleave", () => window.dispatchEvent(new CustomEvent("foretoken:point", { detail: null })));
window.addEventListener("foretoken:point", (event) => {
  const found = event.detail === null ? undefined : shown.order?.get(event.detail);
  at = found === undefined ? null : found;
  redraw();
});
scope.addEventListener("foretoken:replay", ({ detail }) => {
  upto = detail.time === null ? Infinity : detail.tokens;
  draw();
});
follow([course, pass], () => { drawLegend(); redraw(); });
watch("value", () => { upto = Infinity; draw(); });
draw();
