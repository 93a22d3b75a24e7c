// Trace of the accelerated run. Draws values from app/ui/panels/trace.py.
const VERDICTS = __VERDICTS__;
const ACCEPTED = 3, REJECTED = 2, REDRAWN = 4; // keys of VERDICTS
const card = element.querySelector(".ft-chart"), output = card.querySelector("output"), legend = card.querySelector(".ft-legend");
const [run, last] = ["run", "last"].map((name) => card.querySelector(`[data-chart=${name}]`));
const [course, pass] = [run, last].map((figure) => figure.querySelector("canvas"));
const LEFT = 46, RIGHT = 12, NEAR = 84; // pixels; moves of a knob closer than NEAR share a label
let shown = {}; // arrays of the value
let at = null; // token under the pointer, in the order of commitment
let draft = null; // draft of the latest pass under the pointer
let announceCourse = () => {}, announcePass = () => {};

// Ends of the energy axis, which enclose nearly all energies, and zero.
function ends(energies, thresholds) {
  const known = [...energies, ...thresholds].filter((e) => !Number.isNaN(e)).sort((a, b) => a - b);
  if (!known.length) return [-4, 1];
  const low = known[Math.floor(known.length * 0.02)], high = known[Math.ceil(known.length * 0.98) - 1];
  return [Math.floor(Math.min(low, -2)), Math.ceil(Math.max(high, 1))];
}

const inside = (value, [low, high]) => Math.min(high, Math.max(low, value));

// Mark of a draft: a dot if accepted, a cross if rejected, so that verdicts differ without colours.
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

// One energy scale for both charts, over all drafts of the run and of its latest pass.
function energyRange() {
  const last = props.value.last, of = (name) => (last ? numbers(last[name], Float32Array) : []);
  return ends([...shown.energy, ...of("energy")], [...shown.threshold, ...of("threshold")]);
}

const SCALE = { energy: "Energy log p/q of the draft (nats)", chance: "Acceptance probability of the draft (0 to 1)" };

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
    write(page.pen, text, from, 7 + 12 * row, page["fast-text"]);
    free = from + wide + 8;
  }
}

function drawCourse(page, pointed = at) {
  const v = props.value, { pen, width, height } = page, s = shown;
  if (!width || !s.verdict) return;
  const energies = s.energy.length > 0, range = energies ? energyRange() : [0, 1], top = v.moves.length ? 50 : 30;
  const strip = Math.round(height * 0.55), box = { left: LEFT, right: width - RIGHT };
  const x = { range: [0.5, v.limit + 0.5], title: "Token, in the order of commitment", text: (n) => String(n) };
  const [across, up] = axes(page, { ...box, top, bottom: strip - 12 }, { range: x.range, text: () => "" }, { range, title: energies ? SCALE.energy : SCALE.chance, ticks: energies ? undefined : [0, 0.5, 1] });
  const placeOf = (i) => across(i + 1), half = Math.max(1, (width - LEFT - RIGHT) / v.limit);
  if (energies) trail(pen, Array.from(s.threshold, (t, i) => Number.isNaN(t) ? null : [placeOf(i), up(t)]), page.plain);
  const heights = energies ? s.energy : s.chance;
  s.verdict.forEach((verdict, i) => {
    pen.fillStyle = css(VERDICTS[verdict].colour);
    pen.fillRect(placeOf(i) - half / 2, strip - 4, half, 8); // verdict of every token
    if (!Number.isNaN(heights[i])) mark(pen, placeOf(i), up(heights[i]), verdict);
  });
  const most = Math.max(1, Math.ceil(s.entropy.reduce((a, b) => (b > a ? b : a), 0)));
  const [, low] = axes(page, { ...box, top: strip + 30, bottom: height - 38 }, x, { range: [0, most], title: "Uncertainty: entropy (nats)", ticks: [0, most] });
  trail(pen, Array.from(s.entropy, (e, i) => Number.isNaN(e) ? null : [placeOf(i), low(e)]), page.muted);
  drawMoves(page, placeOf);
  if (pointed !== null) trail(pen, [[placeOf(pointed), top], [placeOf(pointed), height - 38]], page.text, { width: 1 });
}

function drawPass(page, pointed = draft) {
  const v = props.value, { pen, width, height } = page;
  if (!width || !v.last) return;
  const energy = numbers(v.last.energy, Float32Array), threshold = numbers(v.last.threshold, Float32Array);
  const count = Math.max(8, v.last.drafts), box = { left: LEFT, right: width - RIGHT, top: 30, bottom: height - 38 };
  const [across, up] = axes(page, box, { range: [0.5, count + 0.5], title: "Draft, from the next token on", text: String },
    { range: energyRange(), title: `${SCALE.energy}, same scale` });
  pen.fillStyle = css(VERDICTS[ACCEPTED].colour);
  pen.globalAlpha = 0.16;
  pen.fillRect(box.left, box.top, (v.last.accepted / count) * (box.right - box.left), box.bottom - box.top);
  pen.globalAlpha = 1;
  trail(pen, Array.from(threshold, (t, i) => [across(i + 1), up(t)]), page.plain);
  energy.forEach((e, i) => mark(pen, across(i + 1), up(e), e >= threshold[i] ? ACCEPTED : REJECTED, i > v.last.accepted));
  if (pointed !== null) trail(pen, [[across(pointed + 1), box.top], [across(pointed + 1), box.bottom]], page.text, { width: 1 });
}

const sayDraft = (i) => {
  const { last: newest } = props.value, energy = numbers(newest.energy, Float32Array)[i], threshold = numbers(newest.threshold, Float32Array)[i];
  const became = i < newest.accepted ? "accepted" : i === newest.accepted ? "rejected" : "not reached";
  return `draft ${i + 1}: energy ${energy.toFixed(2)}, threshold ${threshold.toFixed(2)}, ${became}`;
};

function drawLegend() {
  const v = props.value, colours = getComputedStyle(card), muted = colours.getPropertyValue("--ft-muted");
  const marks = [swatch(css(VERDICTS[ACCEPTED].colour), "accepted", "dot"), swatch(css(VERDICTS[REJECTED].colour), "rejected", "cross")];
  if (shown.verdict?.includes(REDRAWN)) marks.push(swatch(css(VERDICTS[REDRAWN].colour), VERDICTS[REDRAWN].name, "cross"));
  if (shown.energy?.length) marks.push(swatch(colours.getPropertyValue("--ft-plain"), "threshold", "stroke"));
  marks.push(swatch(muted, "uncertainty (entropy, in nats)", "stroke"));
  if (v.moves?.length) marks.push(swatch(colours.getPropertyValue("--ft-fast"), "a knob was moved", "stroke"));
  legend.replaceChildren(...(v.state === "empty" ? [] : marks));
}

function say(i) {
  const v = props.value, s = shown, texts = [`number ${i + 1} of ${v.limit}`, VERDICTS[s.verdict[i]].name];
  if (!Number.isNaN(s.chance[i])) texts.push(`probability ${s.chance[i].toFixed(2)}`);
  if (s.energy.length && !Number.isNaN(s.energy[i])) texts.push(`energy ${s.energy[i].toFixed(2)}, threshold ${s.threshold[i].toFixed(2)}`);
  if (!Number.isNaN(s.entropy[i])) texts.push(`entropy ${s.entropy[i].toFixed(2)}`);
  return [...texts, `step ${s.step[i] + 1}`].join(" · ");
}

function redraw() {
  last.hidden = !props.value.last;
  if (shown.verdict) {
    drawCourse(sheet(course));
    if (!last.hidden) drawPass(sheet(pass));
  }
  output.textContent = draft !== null && props.value.last ? sayDraft(draft) : at === null || !shown.verdict ? props.value.deviation || "" : say(at);
  announceCourse();
  announcePass();
}

let upto = Infinity; // number of tokens shown in a replay

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
    if (v.last) last.querySelector("figcaption").textContent = `Latest pass: ${v.last.accepted} of ${v.last.drafts} drafts accepted (shaded)`;
    if (!v.last || draft >= v.last.drafts) draft = null;
    run.querySelector("figcaption").textContent = "Tokens in the order of commitment";
  }
  card.dataset.tokens = shown.verdict?.length || 0;
  card.dataset.moves = v.moves?.length || 0;
  if (at >= card.dataset.tokens) at = null;
  drawLegend();
  redraw();
}

const point = (i) => emit("point", i === null ? null : shown.position?.[i] ?? null);
const share = (canvas, event) => { const box = canvas.getBoundingClientRect(); return (event.clientX - box.left - LEFT) / (box.width - LEFT - RIGHT); };
course.addEventListener("pointermove", (event) => point(Math.floor(share(course, event) * props.value.limit)));
course.addEventListener("pointerleave", () => point(null));
const pointDraft = (i) => { draft = i; redraw(); };
pass.addEventListener("pointermove", (event) => {
  const i = Math.floor(share(pass, event) * Math.max(8, props.value.last.drafts));
  pointDraft(i >= 0 && i < props.value.last.drafts ? i : null);
});
pass.addEventListener("pointerleave", () => pointDraft(null));
const courseName = () => (shown.verdict ? `Trace of ${shown.verdict.length} of ${props.value.limit} tokens, ${props.value.moves.length} knobs moved` : "No trace yet");
announceCourse = readable(course, courseName, { count: () => shown.verdict?.length || 0, at: () => at, go: point, say });
announcePass = readable(pass, () => last.querySelector("figcaption").textContent || "No pass yet", { count: () => props.value.last?.drafts || 0, at: () => draft, go: pointDraft, say: sayDraft });
exports(card.querySelector("header"), () => {
  const v = props.value, names = ["step", "position", "chance", "entropy", "energy", "threshold"];
  const cell = (values, i) => (!values.length || Number.isNaN(values[i]) ? "" : +values[i].toFixed(5));
  const figures = [{ title: run.querySelector("figcaption").textContent, width: 920, height: 360, draw: (page) => drawCourse(page, null) }];
  if (v.last) figures.push({ title: last.querySelector("figcaption").textContent, width: 560, height: 300, draw: (page) => drawPass(page, null) });
  const moved = v.moves.map(({ letter, before, after, token }) => `${letter} ${before} → ${after} before token ${token + 1}`).join("; ");
  return {
    name: "trace", title: `Trace: ${v.title}`, figures, made: { ...v.made, moved, deviation: v.deviation },
    rows: [["token", "verdict", ...names], ...Array.from(shown.verdict, (k, i) => [i + 1, VERDICTS[k].name, ...names.map((name) => cell(shown[name], i))])],
  };
});
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
