// One token under the lens: its distributions, its coin and its verdict. Draws values from app/ui/panels/lens.py.
// Of a mesh, all tokens of a face are offered, and the candidates of one are dots in the 3D view.
const IS_MESH = __KIND__ === "mesh", THING = IS_MESH ? "token" : "patch", THINGS = IS_MESH ? "tokens" : "patches";
const card = element.querySelector(".ft-lens"), part = (name) => card.querySelector(name);
const canvas = part(".ft-lens-bars"), crop = part(".ft-lens-crop"), play = part("[data-do=play]"), sliders = [...card.querySelectorAll("[data-if]")];
const LISTS = { tokens: Int32Array, p: Float32Array, q: Float32Array, dice: Float32Array }, KINDS = { draft: Int32Array, coin: Float32Array, mass: Float32Array, own: Int32Array, step: Int32Array, verdict: Uint8Array, chance: Float32Array };
const treeOf = part(".ft-lens-pass"), treeCanvas = part(".ft-lens-tree"), KEPT = css(__KEPT__);
const LEAST = __LEAST__, ACCEPTED = 3; // a key of VERDICTS in canvas.py
const LEVEL = 26, TREE = 130; // pixels of a level of a tree, and of all levels at most
const SLOWLY = 2200, AROUND = 2; // ms per token of the pass that plays by itself; tokens around the one in the crop
const still = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
let known = new Map(); // position -> its record; a run in progress sends only the latest passes
let at = null, pointed = false, timer = null, changed = 0, picture = null;
let announce = () => {};
let mesh = { corners: new Int32Array(), ids: new Int32Array(), owner: [] }; // owner: of each position, its [face, corner], both from 0

const share = (p) => (p >= 0.995 ? "100 %" : p >= 0.0995 ? `${Math.round(100 * p)} %` : p >= 0.00095 ? `${+(100 * p).toPrecision(1)} %` : p >= 1e-6 ? `1 in ${Math.round(1 / p).toLocaleString("en")}` : "less than 1 in a million");
const CORNERS = ["first", "second", "third"];
function where(place) {
  if (!IS_MESH) return `${cell(place)}, pass ${known.get(place).step + 1}`;
  const [face, corner] = mesh.owner[place] ?? [];
  return `${face === undefined ? "no face" : `face ${(face + 1).toLocaleString("en")}, ${CORNERS[corner]} corner`}, pass ${known.get(place).step + 1}`;
}
const cell = (place) => `row ${Math.floor(place / props.value.columns) + 1}, column ${(place % props.value.columns) + 1}`;

function readMesh(v) {
  mesh = { corners: numbers(v.corners, Int32Array), ids: numbers(v.ids, Int32Array), owner: [] };
  for (let i = mesh.corners.length - 2; i >= 0; i -= 2) { // the first face that has a token owns it
    for (let place = mesh.corners[i]; place < mesh.corners[i + 1]; place += 1) mesh.owner[place] = [Math.floor(i / 6), (i / 2) % 3];
  }
}

// The tokens of a place's face, as buttons.
function drawTokens() {
  const [face] = mesh.owner[at] ?? [], places = face === undefined ? [at] : [0, 1, 2].flatMap((corner) => {
    const from = 6 * face + 2 * corner;
    return Array.from({ length: mesh.corners[from + 1] - mesh.corners[from] }, (_, i) => mesh.corners[from] + i);
  });
  part(".ft-lens-tokens").replaceChildren(...places.map((place) => {
    const record = known.get(place), button = node("button", tokenWords(mesh.ids[place]), { type: "button", disabled: !record, onclick: () => choose(place) });
    button.setAttribute("aria-pressed", place === at);
    if (record) button.dataset.kept = record.draft < 0 ? "own" : record.verdict === ACCEPTED;
    return button;
  }));
}

// Candidates of a place as dots in the 3D view: cell, probability, and "own" for the drawn one, "bad" for a refused guess, else "accent".
function tellCandidates(record) {
  let block = at - 1;
  while (block >= 0 && isOffset(mesh.ids[block])) block -= 1;
  const dots = shownBars(record).filter((bar) => bar.token !== null && Math.max(bar.p, bar.q || 0) >= LEAST).flatMap(({ token, p, q }) => {
    const cell = cellOf(token, blockOf(mesh.ids[block] ?? 0)), role = token === record.own ? "own" : token === record.draft ? "bad" : "accent";
    return cell ? [{ cell, p: Math.max(p, q || 0), role }] : [];
  });
  emit("candidates", pointed ? dots : [], scope);
}

// The trees of the passes, by step: tokens, parents, p and q of the nodes, and the kept nodes in order.
function readTrees({ first, ...texts }) {
  const list = (name, Kind = Int32Array) => numbers(texts[name], Kind), trees = new Map();
  const values = { tokens: list("tree_tokens"), parents: list("tree_parents"), p: list("tree_p", Float32Array), q: list("tree_q", Float32Array), kept: bytes(texts.tree_accepted) };
  let from = 0;
  list("step_nodes").forEach((count, i) => {
    const own = Object.fromEntries(Object.entries(values).map(([name, all]) => [name, all.subarray(from, from + count)]));
    const depths = [];
    own.parents.forEach((parent) => depths.push(parent < 0 ? 1 : depths[parent] + 1));
    trees.set(first + i, { ...own, path: Array.from(own.kept.keys()).filter((node) => own.kept[node]), levels: Math.max(0, ...depths) });
    from += count;
  });
  return trees;
}

// The guesses for the place at this level of a tree: the nodes below the kept one before it.
function guessesOf(tree, level) {
  if (!tree || level > tree.path.length) return [];
  const before = level ? tree.path[level - 1] : -1;
  return [...tree.parents.keys()].filter((node) => tree.parents[node] === before).map((node) => ({ node, token: tree.tokens[node], p: tree.p[node], q: tree.q[node] }));
}

function read(v) {
  const [one, many] = [KINDS, LISTS].map((kinds) => Object.entries(kinds).map(([name, Kind]) => [name, numbers(v[name], Kind)]));
  const counts = bytes(v.count), trees = v.trees ? readTrees(v.trees) : new Map();
  const sheet = { order: new Map(Array.from(numbers(v.known, Int32Array), (token, i) => [token, i])), image: null };
  let from = 0, level = 0, step = null;
  numbers(v.position, Int32Array).forEach((position, i) => {
    const record = { sheet, ...Object.fromEntries(one.map(([name, values]) => [name, values[i]])) };
    [level, step] = [record.step === step ? level + 1 : 0, record.step];
    const tree = trees.get(step);
    Object.assign(record, { level, tree: tree?.tokens.length ? tree : null, guesses: guessesOf(tree, level) });
    for (const [name, values] of many) record[name] = values.subarray(from, from + counts[i]);
    known.set(position, record);
    from += counts[i];
  });
  if (v.sheet) bitmapOf(v.sheet).then((image) => { sheet.image = image; redraw(); });
}

// --- what the bars show ---

// Candidates of a place, likeliest first, and all other tokens as one: token, p and q (null = nothing was drafted).
function barsOf(record) {
  const guessed = !Number.isNaN(record.q[0]);
  const bars = Array.from(record.tokens, (token, i) => ({ token, p: record.p[i], q: guessed ? record.q[i] : null, dice: record.dice[i] }));
  for (const { token, p, q } of record.guesses) {
    const bar = bars.find((each) => each.token === token) || bars[bars.push({ token, p, q: 0 }) - 1];
    bar.q = q;
  }
  const rest = (name) => Math.max(0, 1 - bars.reduce((sum, bar) => sum + (bar[name] || 0), 0));
  bars.sort((a, b) => Math.max(b.p, b.q || 0) - Math.max(a.p, a.q || 0));
  return [...bars, { token: null, p: rest("p"), q: guessed ? rest("q") : null }];
}

// Bars under another temperature and top-p. The other tokens, whose probabilities are not recorded, count as equally likely.
function moved(bars, name, { temperature, top_p: limit }) {
  if (bars[0][name] === null) return bars;
  const others = Math.max(1, props.value.vocabulary - bars.length + 1);
  const scaled = bars.map((bar) => (bar.token === null ? others * (bar[name] / others) ** (1 / temperature) : bar[name] ** (1 / temperature)));
  const total = scaled.reduce((sum, x) => sum + x, 0), ranked = scaled.map((x, i) => i).sort((a, b) => scaled[b] - scaled[a]);
  let before = 0;
  const left = scaled.map(() => 0);
  for (const i of ranked) {
    if (before < limit) left[i] = scaled[i];
    before += scaled[i] / total;
  }
  const sum = left.reduce((all, x) => all + x, 0);
  return bars.map((bar, i) => ({ ...bar, [name]: left[i] / sum }));
}

const wished = () => Object.fromEntries(sliders.map((slider) => [slider.dataset.if, Number(slider.value)]));
const isMoved = () => sliders.some((slider) => slider.value !== slider.defaultValue);
const shownBars = (record) => { const wish = wished(); return isMoved() ? moved(moved(barsOf(record), "p", wish), "q", wish) : barsOf(record); };

// What a refused guess leaves: max(0, p - q), scaled to 1.
function leftOver(bars, record) {
  const rest = bars.map((bar) => Math.max(0, bar.p - (bar.q || 0))), total = isMoved() || Number.isNaN(record.mass) ? rest.reduce((sum, x) => sum + x, 0) : record.mass;
  return rest.map((x) => (total > 0 ? Math.min(1, x / total) : 0));
}

// --- in words ---

const byDice = () => Boolean(props.value.dice);

function verdictOf(record) {
  if (record.guesses.length) return record.verdict === ACCEPTED ? `Kept: one of ${record.guesses.length === 1 ? "1 guess" : `${record.guesses.length} guesses`}.` : "No guess was kept; the model drew this one.";
  if (record.draft < 0) return "No guess here: the model drew it.";
  if (record.verdict === ACCEPTED) return "Kept.";
  return byDice() ? "Refused, replaced by the model's own." : "Refused, redrawn from what is left.";
}

function whyOf(record) {
  const kept = record.verdict === ACCEPTED, i = record.tokens.indexOf(record.draft), p = record.p[i], q = record.q[i];
  if (record.guesses.length) return `A tree guesses several ${THINGS} for one place. The model checks them in order and keeps the first that passes.`;
  if (record.draft < 0) return "All guesses before this place were kept, so the same pass gave one more token.";
  if (byDice()) return `Guess and model roll the same dice, each over its own bars. They fall on ${kept ? `the same ${THING}: kept` : `different ${THINGS}: the model's counts`}.`;
  if (Number.isNaN(record.coin)) return "Here a whole block of guesses was checked at once, so this place had no coin of its own.";
  const pair = `The guess gave this ${THING} ${share(q)}, the model gives it ${share(p)}.`;
  if (p >= q) return `${pair} The model likes it at least as much, so it is always kept.`;
  if (kept !== record.coin * q < p) return `${pair} The coin lies outside the model's bar; the tolerance kept it.`;
  return `${pair} The coin falls anywhere under the guess's bar: ${kept ? "inside" : "above"} the model's bar, so ${kept ? "kept" : "refused"}.`;
}

function whatIf(record, bars) {
  const bar = bars.find((each) => each.token === record.draft);
  if (!isMoved()) return `Move a slider: the bars change, the ${IS_MESH ? "mesh" : "picture"} does not.`;
  if (bar && byDice() && record.guesses.length === 0) {
    const roll = (name) => bars.filter((each) => each[name] > 0 && each.token !== null).reduce((best, each) => (Math.log(each[name]) + each.dice > Math.log(best[name]) + best.dice ? each : best));
    const then = (bar.q === null ? bar : roll("q")) === roll("p"), now = record.verdict === ACCEPTED;
    return `With the same dice the guess would ${then === now ? "still " : ""}have been ${then ? "kept" : "refused"}.`;
  }
  if (!bar || Number.isNaN(record.coin)) return "The bars show these settings. No coin decided here, so nobody can say what would have happened.";
  const then = record.coin * bar.q < bar.p + wished().tolerance, now = record.verdict === ACCEPTED;
  return `With the same guess and the same coin it would ${then === now ? "still " : ""}have been ${then ? "kept" : "refused"}.`;
}

const nameOf = (bar, record) => (bar.token === null ? "all others" : `token ${bar.token}${bar.token === record.draft ? " (the guess)" : ""}${bar.token === record.own ? " (drawn)" : ""}`);
function say(place) {
  const record = known.get(place);
  const bars = barsOf(record).map((bar) => `${nameOf(bar, record)}: ${bar.q === null ? "" : `guess ${share(bar.q)}, `}model ${share(bar.p)}`);
  return `${where(place)}. ${verdictOf(record)} ${bars.join("; ")}`;
}

// --- drawing ---

const rows = () => (byDice() || props.value.trees ? 2 : 3); // only a coin leaves something over

function drawBars(page, record) {
  const { pen, width, height } = page, bars = shownBars(record), rest = leftOver(bars, record);
  const left = 4, right = width - 42, column = Math.min(26, (right - left) / bars.length), patch = IS_MESH ? 0 : Math.max(6, Math.floor(column) - 3), row = (height - patch - 12) / rows(), high = row - 20;
  const x = (i) => left + i * column, y = (line, p) => patch + 10 + line * row + 18 + high - high * Math.max(0, Math.min(1, Math.log10(Math.max(p, LEAST) / LEAST) / 4));
  const guess = bars.findIndex((bar) => bar.token !== null && bar.token === record.draft), own = bars.findIndex((bar) => bar.token === record.own);
  bars.forEach((bar, i) => {
    if (IS_MESH) return;
    if (bar.token === null) return write(pen, "…", x(i) + column / 2, patch / 2 + 2, page.muted, "center");
    patches.image = record.sheet.image;
    if (patches.image) drawPatch(pen, record.sheet.order.get(bar.token), x(i) + 1, 2, patch);
    else if (column > 22) write(pen, String(bar.token), x(i) + column / 2, patch / 2 + 2, page.muted, "center");
  });
  const frame = (i, colour) => {
    if (IS_MESH) return write(pen, "▾", x(i) + column / 2, 6, colour, "center");
    pen.strokeStyle = colour; pen.lineWidth = 2; pen.strokeRect(x(i), 1, patch + 2, patch + 2);
  };
  if (guess >= 0 && guess !== own) frame(guess, page.muted);
  if (own >= 0) frame(own, page.fast);
  const drafted = bars[0].q !== null, refused = record.draft >= 0 && record.verdict !== ACCEPTED && !byDice();
  const chosen = record.guesses.length && record.guesses.every(({ q }) => q === 1);
  const lines = [[chosen ? "Guesses, chosen without a draw" : record.guesses.length ? "Guesses" : "Guess", "q", page.muted], ["Model", "p", page.accent], ["Left over", null, page.fast]];
  lines.slice(0, rows()).forEach(([title, name, colour], line) => {
    const nothing = (line === 0 && !drafted && !record.guesses.length) || (line === 2 && !refused);
    write(pen, nothing ? `${title}: ${line ? "not needed" : record.draft < 0 ? "none" : "its odds are not known"}` : title, left, patch + 10 + line * row + 8, nothing ? page.muted : page.text);
    for (const tick of [1, 0.01]) {
      trail(pen, [[left, y(line, tick)], [right, y(line, tick)]], page.line, { width: 1 });
      write(pen, share(tick), right + 4, y(line, tick), page.muted);
    }
    trail(pen, [[left, y(line, 0)], [right, y(line, 0)]], page["line-strong"], { width: 1 });
    if (nothing) return;
    bars.forEach((bar, i) => {
      const p = name ? bar[name] : rest[i], top = y(line, p || 0);
      pen.fillStyle = bar.token === null ? page["line-strong"] : colour;
      pen.globalAlpha = bar.token === null || i === own || i === guess ? 1 : 0.6;
      if (p > 0) pen.fillRect(x(i) + 1, Math.min(top, y(line, 0) - 1), Math.max(2, column - 3), Math.max(1, y(line, 0) - top));
      pen.globalAlpha = 1;
    });
  });
  if (guess < 0 || Number.isNaN(record.coin)) return;
  const { q } = bars[guess]; // the guess's bar as an outline over the model's, and the coin somewhere under it
  pen.strokeStyle = page.text;
  pen.lineWidth = 1;
  pen.strokeRect(x(guess) + 0.5, y(1, q), Math.max(2, column - 2), y(1, 0) - y(1, q));
  pen.beginPath();
  pen.arc(x(guess) + column / 2 - 0.5, y(1, record.coin * q), 4, 0, 7);
  pen.fillStyle = refused ? page.bad : page.good;
  pen.fill();
  pen.strokeStyle = page.page;
  pen.lineWidth = 1.5;
  pen.stroke();
}

// The tree of the place's pass: kept nodes are filled, the guesses for this place framed. A click goes to the place of a level.
let boxes = [];
function drawTree(record) {
  const { tree } = record;
  treeOf.hidden = !tree;
  boxes = [];
  if (!tree) return;
  const page = sheet(treeCanvas), { pen, width, height } = page, here = new Map(record.guesses.map(({ node, token }) => [node, token === record.own]));
  ({ boxes } = boxesOf(tree.parents, { left: 0, top: 0, width, height, tallest: LEVEL, widest: 2 * LEVEL, above: 0 }));
  patches.image = record.sheet.image;
  for (const box of boxes) {
    const taken = tree.path.includes(box.node), token = tree.tokens[box.node], wide = Math.max(1, box.wide - 1.5);
    pen.fillStyle = taken ? KEPT : page.raised;
    pen.fillRect(box.x, box.y, wide, box.high - 2);
    drawNode(pen, box, IS_MESH ? undefined : record.sheet.order.get(token), [IS_MESH ? tokenWords(token) : "", String(token)].filter(Boolean), taken ? "#fff" : page.muted);
    if (!here.has(box.node)) continue;
    pen.strokeStyle = here.get(box.node) ? page.fast : page.text;
    pen.lineWidth = here.get(box.node) ? 2.5 : 1.25;
    pen.strokeRect(box.x + 0.75, box.y + 0.75, Math.max(1, wide - 1.5), box.high - 3.5);
  }
  const text = `This pass guessed ${tree.tokens.length === 1 ? "one" : `${tree.tokens.length} in a tree`} and kept ${tree.path.length || "none"}.`;
  treeOf.querySelector("figcaption").textContent = text;
  treeCanvas.setAttribute("aria-label", `${text} The framed ones are the guesses for this place.`);
}

function drawCrop() {
  const v = props.value, pen = crop.getContext("2d"), cells = 2 * AROUND + 1;
  crop.width = crop.height = 160;
  if (IS_MESH || !picture || at === null) return;
  const side = picture.width / v.columns, column = at % v.columns, row = Math.floor(at / v.columns), cell = crop.width / cells;
  pen.imageSmoothingEnabled = false;
  pen.drawImage(picture, (column - AROUND) * side, (row - AROUND) * side, cells * side, cells * side, 0, 0, crop.width, crop.width);
  for (const [colour, width] of [["#000", 7], ["#fff", 4]]) {
    Object.assign(pen, { strokeStyle: colour, lineWidth: width });
    pen.strokeRect(AROUND * cell - 2, AROUND * cell - 2, cell + 4, cell + 4);
  }
}

function redraw() {
  const record = known.get(at);
  card.dataset.at = record ? at : "";
  if (!record || props.value?.state === "empty") return;
  part(".ft-lens-place").textContent = where(at);
  part(".ft-lens-verdict").textContent = verdictOf(record);
  part(".ft-lens-why").textContent = whyOf(record);
  part(".ft-lens-if").textContent = whatIf(record, shownBars(record));
  card.dataset.kept = record.verdict === ACCEPTED;
  if (canvas.getBoundingClientRect().width) drawBars(sheet(canvas), record);
  drawTree(record);
  drawCrop();
  if (IS_MESH) {
    drawTokens();
    tellCandidates(record);
  }
  announce();
}

// --- the pass that plays by itself ---

// Places of the pass that teaches most: many guesses kept, then one refused.
function lesson() {
  const passes = new Map();
  for (const [place, record] of known) passes.set(record.step, [...(passes.get(record.step) || []), place]);
  const worth = (places) => places.filter((place) => { const r = known.get(place); return r.draft >= 0 && Math.max(...r.p) < 0.9 && Math.max(...r.q) < 0.9; }).length
    + 3 * places.some((place) => { const r = known.get(place); return r.draft >= 0 && r.verdict !== ACCEPTED; });
  return [...passes.values()].filter((places) => places.length < 9).sort((a, b) => worth(b) - worth(a))[0] || [...known.keys()];
}

function pause() {
  clearInterval(timer);
  timer = null;
  play.textContent = "Play a pass";
}

function playPass() {
  const places = lesson();
  let turn = 0;
  at = places[0];
  redraw();
  if (still && !pointed) return pause();
  play.textContent = "Pause";
  clearInterval(timer);
  timer = setInterval(() => {
    if (!element.offsetParent) return;
    turn = (turn + 1) % places.length;
    at = places[turn];
    redraw();
  }, SLOWLY);
}

[crop.hidden, part(".ft-lens-tokens").hidden] = [IS_MESH, !IS_MESH];
function choose(place) {
  go(place);
  emit("point", place);
}

function go(to) {
  pause();
  pointed = true;
  if (known.has(to)) at = to;
  redraw();
}

function draw() {
  const v = props.value;
  if (!v) return;
  card.dataset.state = v.state;
  part(".ft-about-chart").textContent = v.about;
  play.hidden = !["done", "stopped"].includes(v.state);
  if (v.state === "empty") {
    pause();
    if (IS_MESH) emit("candidates", [], scope);
    [known, at, pointed, picture] = [new Map(), null, false, null];
    return;
  }
  if (v.state !== "running") known = new Map(); // the whole run comes at its end
  if (IS_MESH) readMesh(v);
  read(v);
  card.dataset.places = known.size;
  canvas.style.height = `${28 + 58 * rows()}px`;
  treeCanvas.style.height = `${Math.min(TREE, LEVEL * Math.max(1, ...[...known.values()].map(({ tree }) => tree?.levels || 0)))}px`;
  if (v.state === "running") {
    const newest = [...known.keys()].at(-1);
    if (!pointed && performance.now() - changed > SLOWLY / 2) [at, changed] = [newest, performance.now()];
    redraw();
  } else if (pointed && known.has(at)) redraw();
  else playPass();
}

window.addEventListener("foretoken:point", (event) => {
  const v = props.value;
  if (event.detail === null || !known.has(event.detail) || !element.offsetParent || (event.columns && event.columns !== v.columns)) return; // keeps the last place
  const opens = card.dataset.open !== "true";
  card.dataset.open = true;
  go(event.detail);
  if (opens && getComputedStyle(card).position === "fixed") scope.querySelector?.(IS_MESH ? ".ft-mesh-frame" : "[data-side=fast]").scrollIntoView(); // above the sheet of a phone
});
window.addEventListener("foretoken:picture", ({ detail }) => {
  if (detail.side !== "fast") return;
  picture = detail.picture;
  if (known.has(at)) drawCrop();
});
treeCanvas.addEventListener("click", (event) => {
  const box = boxAt(boxes, treeCanvas, event), { step } = known.get(at);
  const place = box && [...known.keys()].find((each) => known.get(each).step === step && known.get(each).level === box.depth - 1);
  if (place !== undefined && place !== null) choose(place);
});
play.addEventListener("click", () => { if (timer) return pause(); pointed = true; playPass(); });
document.addEventListener("click", ({ target }) => { if (target.closest?.("[data-do=fork], [data-do=vary]")) card.dataset.open = false; }); // their form is below the sheet
part("[data-do=close]").addEventListener("click", () => { card.dataset.open = false; });
for (const slider of sliders) {
  const show = () => { slider.parentElement.querySelector("output").textContent = Number(slider.value).toFixed(2); slider.style.setProperty("--at", `${(100 * (slider.value - slider.min)) / (slider.max - slider.min)}%`); };
  slider.addEventListener("input", () => { pause(); show(); redraw(); });
  show();
}
const places = () => [...known.keys()].sort((a, b) => a - b);
announce = readable(canvas, () => "Distributions of a token", {
  count: () => known.size, at: () => (known.has(at) ? places().indexOf(at) : null), say: (i) => say(places()[i]),
  go: (i) => { if (i !== null) choose(places()[i]); },
});
follow([canvas, treeCanvas], redraw);
watch("value", draw);
draw();
