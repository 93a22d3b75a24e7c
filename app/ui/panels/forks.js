// Goes on from a token of the finished run on display in another way, and shows the tree of its forks. A mesh has no picture and no prompt:
// the part that is kept is shown in its view.
const IS_MESH = __KIND__ === "mesh";
const METHODS = __METHODS__;
const SIDES = __SIDES__;
const MOST_LIKELY = 5; // tokens to choose from
const box = element.querySelector(".ft-forks"), form = box.querySelector("form"), fields = form.elements;
const act = (name) => box.querySelector(`[data-do=${name}]`);
const tree = box.querySelector(".ft-fork-tree"), choices = form.querySelector(".ft-fork-tokens"), preview = form.querySelector("canvas");
const numbers = (text, kind) => new kind(bytes(text).buffer);
let races = [], race = null; // stored races, and the one on display
let run = null; // of `race`: its settings, tokens, columns or ends of faces, course, odds, picture and form
let at = 0; // number of tokens to keep
let token = null; // in place of the drawn one; null = the drawn one
let running = false;
let image = null; // bitmap of the picture

for (const [title, name] of METHODS) fields.method.add(new Option(title, name));

const valueOf = (each, row = 0) => SIDES[row]?.reduce((found, name) => found?.[name], each.parts);
const rowsKept = () => at / run.columns;

function place(count, ends = run.ends) { // in words
  if (IS_MESH) return `face ${(ends.filter((end) => end <= count).length + 1).toLocaleString("en")}`;
  const row = Math.floor(count / run.columns) + 1, column = (count % run.columns) + 1;
  return column === 1 ? `row ${row}` : `row ${row}, column ${column}`;
}

// The number of tokens without a gap from the start that are committed at a time of the replay.
function keptAt(time) {
  const committed = new Set(run.course.position.filter((_, i) => run.course.end[i] <= time));
  let count = 0;
  while (committed.has(count)) count += 1;
  return count;
}

function setPlace(count) {
  at = Math.min(Math.max(1, count), run.tokens.length - 1);
  token = likelyTokens().find(([each]) => each !== run.tokens[at])?.[0] ?? null;
  draw();
}

// The tokens that the model held most likely at every place, as [token, probability], of the records of the lens.
function oddsOf({ position, count, tokens, p, known }) {
  const [of, their] = [numbers(tokens, Int32Array), numbers(p, Float32Array)], counts = bytes(count), places = new Map();
  let first = 0;
  numbers(position, Int32Array).forEach((where, i) => {
    const rows = Array.from({ length: counts[i] }, (_, j) => [of[first + j], their[first + j]]);
    places.set(where, rows.sort((a, b) => b[1] - a[1]));
    first += counts[i];
  });
  return { places, order: new Map(Array.from(numbers(known, Int32Array), (each, i) => [each, i])) };
}

const rowsHere = () => run.odds?.places.get(at) ?? [];
const likelyTokens = () => rowsHere().filter(([each, p]) => p > 0 && each !== (IS_MESH ? __END__ : -1)).slice(0, MOST_LIKELY); // nothing follows an end

function tokenButton(each, p) {
  const drawn = each === run.tokens[at], button = node("button", "", { type: "button", onclick: () => { token = drawn ? null : each; draw(); } });
  button.setAttribute("aria-pressed", drawn ? token === null : token === each);
  const index = run.odds.order.get(each) ?? -1;
  if (patches.image && index >= 0) {
    const patch = node("canvas", "", { width: 24, height: 24 });
    drawPatch(patch.getContext("2d"), index, 0, 0, 24);
    button.append(patch);
  }
  const share = p >= 0.01 ? `${Math.round(100 * p)} %` : "< 1 %";
  button.append(node("span", [IS_MESH && tokenWords(each), drawn && "as drawn", share].filter(Boolean).join(", ")));
  button.setAttribute("aria-label", `Token ${each}, ${share}${drawn ? ", as drawn" : ""}`);
  button.dataset.token = each;
  return button;
}

function drawTokens() {
  const likely = likelyTokens(), own = run.tokens[at];
  choices.parentElement.hidden = varying() || !likely.length;
  if (!likely.some(([each]) => each === own)) likely.unshift(rowsHere().find(([each]) => each === own) ?? [own, 0]);
  if (run.odds) choices.replaceChildren(...likely.map(([each, p]) => tokenButton(each, p)));
}

function drawPreview() {
  if (IS_MESH) emit("kept-faces", form.hidden ? null : run.ends.filter((end) => end <= at).length, scope);
  if (!image) return;
  const pen = preview.getContext("2d"), { width, height } = preview, rows = run.tokens.length / run.columns, high = height / rows;
  pen.clearRect(0, 0, width, height);
  pen.drawImage(image, 0, 0, width, height);
  const full = Math.floor(rowsKept()), across = (at % run.columns) * (width / run.columns);
  pen.fillStyle = getComputedStyle(box).getPropertyValue("--ft-page");
  pen.globalAlpha = 0.86;
  pen.fillRect(across, full * high, width - across, high);
  pen.fillRect(0, (full + 1) * high, width, height);
  pen.globalAlpha = 1;
}

const varying = () => form.dataset.kind === "vary";
const isChanged = () => token !== null || ["prompt", "seed", "method", "temperature"].some((name) => fields[name].value !== String(run.form[name]));

function draw() {
  box.hidden = running || !run;
  if (!run) return;
  box.querySelector(".ft-forks-place").textContent = form.hidden ? `Stop the replay or click a ${IS_MESH ? "face" : "token"}, and go on from there in another way (now: ${place(at)}).` : "";
  drawTree();
  if (form.hidden) return;
  for (const each of form.querySelectorAll("[data-for=fork]")) each.hidden = varying() || (IS_MESH && each.dataset.kind === "image");
  Object.assign(fields.at, varying() && !IS_MESH ? { min: run.columns, max: run.tokens.length - run.columns, step: run.columns } : { min: 1, max: run.tokens.length - 1, step: 1 });
  fields.at.value = at;
  fields.at.style.setProperty("--at", `${(100 * (at - fields.at.min)) / (fields.at.max - fields.at.min)}%`);
  form.querySelector("output").textContent = varying() && !IS_MESH ? `${rowsKept()} of ${run.tokens.length / run.columns} rows` : `${at.toLocaleString("en")} of ${run.tokens.length.toLocaleString("en")} tokens, up to ${place(at)}`;
  drawTokens();
  drawPreview();
  const go = form.querySelector("[type=submit]");
  go.textContent = varying() ? "Draw the rest" : "Grow both";
  go.disabled = !isChanged();
  form.querySelector(".ft-fork-hint").textContent = go.disabled ? `Change something: the next token, ${IS_MESH ? "" : "prompt, "}method, temperature or seed.` : "";
}

function open(kind) {
  const closes = !form.hidden && form.dataset.kind === kind;
  form.hidden = closes;
  form.dataset.kind = kind;
  for (const name of ["fork", "vary"]) act(name).setAttribute("aria-expanded", !form.hidden && name === kind);
  if (closes) {
    drawPreview();
    return draw();
  }
  for (const [name, value] of Object.entries(run.form)) fields[name].value = value;
  if (kind === "vary") {
    fields.seed.value = Math.floor(Math.random() * __LARGEST__);
    if (!IS_MESH) at = Math.max(run.columns, Math.round(rowsKept()) * run.columns);
    token = null;
    draw();
  } else setPlace(at);
}

function request() {
  const own = { prompt: fields.prompt.value, seed: Number(fields.seed.value), temperature: Number(fields.temperature.value), method: fields.method.value };
  return { settings: run.settings, tokens: [...run.tokens], at, token, number: Date.now(), ...own };
}

function formOf({ prompt, seed, sampling, preset, method }) { // the fields of a run
  const has = (name) => [...fields.method.options].some((each) => each.value === name);
  if (preset && !has(preset) && has(method)) fields.method.add(new Option(race.rows[0].title, preset)); // a former choice of auto
  return { prompt, seed, temperature: sampling.temperature, method: [preset, method].find(has) ?? METHODS[0][1] };
}

// Number of tokens up to the end of each face.
const endsOf = (value) => numbers(value.course.corners, Int32Array).filter((_, i) => i % 6 === 5);

function courseOf(value) { // tokens, and the time at which each position is committed
  if (!IS_MESH) {
    return { tokens: numbers(value.tokens, Int32Array), course: { position: numbers(value.course.position, Int32Array), end: numbers(value.course.end, Float32Array) } };
  }
  const tokens = numbers(value.course.ids, Int32Array), end = new Float32Array(tokens.length), seconds = numbers(value.course.seconds, Float32Array);
  numbers(value.course.tokens, Int32Array).forEach((upto, step, counts) => end.fill(seconds[step], step ? counts[step - 1] : 0, upto));
  return { tokens, course: { position: tokens.map((_, i) => i), end }, ends: endsOf(value) };
}

// Takes the race on display; null for one that cannot go on, such as a stopped one.
function take(shown) {
  race = shown;
  const row = shown?.rows[0], value = shown && valueOf(shown);
  if (!row?.finished || !(IS_MESH ? value?.course?.ids : value?.tokens)) {
    run = null;
    return draw();
  }
  const { settings } = row, own = shown.parts[__LENS__];
  run = { settings, columns: value.columns, form: formOf(settings), odds: own?.state === "done" ? oddsOf(own) : null, ...courseOf(value) };
  if (run.odds) decodePatches(own.sheet, draw);
  image = null;
  if (!IS_MESH) bitmapOf(value.picture).then((bitmap) => { image = bitmap; drawPreview(); });
  form.hidden = true;
  for (const name of ["fork", "vary"]) act(name).setAttribute("aria-expanded", false);
  setPlace(IS_MESH ? run.ends[Math.floor(run.ends.length / 4)] ?? 1 : Math.ceil(run.tokens.length / run.columns / 4) * run.columns);
}

// --- the tree ---

const settingsOf = (each) => each.rows[0].settings;

function change(child, parent) { // what a fork changed, in words
  const own = settingsOf(child), old = settingsOf(parent), changes = [];
  if (own.prefix.length > own.at) changes.push("another token");
  if (own.prompt !== old.prompt && !own.prompt.startsWith(`${old.prompt} on `)) changes.push(`“${own.prompt}”`);
  if (own.seed !== old.seed) changes.push(`seed ${own.seed}`);
  if (own.sampling.temperature !== old.sampling.temperature) changes.push(`temperature ${own.sampling.temperature}`);
  if ((own.preset ?? own.method) !== (old.preset ?? old.method)) changes.push(child.rows[0].title);
  return `${place(own.at, IS_MESH ? endsOf(valueOf(child)) : null)}: ${changes.join(", ") || "again"}`;
}

function branch(each, parent, left) {
  const item = node("li"), button = node("button", "", { type: "button", onclick: () => emit("show-race", each.id, scope) });
  const picture = new Image(44, 44);
  picture.src = each.rows[0].thumbnail;
  picture.alt = "";
  button.append(picture, node("span", parent ? change(each, parent) : `Original: seed ${settingsOf(each).seed}`));
  if (each.id === race.id) button.setAttribute("aria-current", "true");
  item.append(button);
  const children = left.filter((other) => settingsOf(other).parent === settingsOf(each).id), rest = left.filter((other) => !children.includes(other));
  if (!children.length) return item;
  const list = node("ul");
  list.append(...children.map((child) => branch(child, each, rest)));
  item.append(list);
  return item;
}

function drawTree() {
  const known = races.filter((each) => settingsOf(each)?.id).reverse(); // the oldest first
  let root = race;
  for (let steps = 0, above; steps < known.length; steps += 1, root = above) {
    above = known.find((each) => settingsOf(each).id === settingsOf(root).parent);
    if (!above || above === root) break;
  }
  const left = known.filter((each) => each !== root && settingsOf(each).parent);
  const list = node("ul");
  list.append(branch(root, null, left));
  tree.replaceChildren(list);
  tree.hidden = list.querySelectorAll("li").length < 2;
}

act("fork").addEventListener("click", () => open("fork"));
act("vary").addEventListener("click", () => open("vary"));
fields.at.addEventListener("input", () => setPlace(Number(fields.at.value)));
form.addEventListener("input", ({ target }) => { if (target !== fields.at) draw(); });
form.addEventListener("submit", (event) => {
  event.preventDefault();
  if (!isChanged()) return;
  props.value = { fork: request() };
  trigger("input");
});
scope.addEventListener("foretoken:replay", ({ detail }) => { if (run && form.hidden && detail.time !== null) setPlace(keptAt(detail.time)); });
scope.addEventListener("foretoken:restore-fork", ({ detail: own }) => { // its settings, on the run that it goes on from
  emit("show-race", races.find((each) => settingsOf(each)?.id === own.parent).id, scope);
  if (!run) return;
  form.hidden = true;
  open("fork");
  for (const [name, value] of Object.entries(formOf(own))) fields[name].value = value;
  [at, token] = [own.at, own.prefix[own.at] ?? null];
  draw();
});
for (const each of form.querySelectorAll("[data-kind]")) each.hidden = IS_MESH;
scope.addEventListener("foretoken:choose-token", ({ detail }) => { if (run) setPlace(detail + 1); }); // the last one of a face
let pointed = null; // token under the pointer
window.addEventListener("foretoken:point", ({ detail }) => { pointed = detail ?? pointed; });
scope.addEventListener("click", ({ target }) => { if (run && pointed !== null && target.closest(".ft-frame")) setPlace(pointed); });
scope.addEventListener("foretoken:running", ({ detail }) => {
  if (running === detail) return;
  running = detail;
  draw();
});
scope.addEventListener("foretoken:races", ({ detail }) => {
  races = detail.races;
  const shown = races.find((each) => each.id === detail.shown) ?? null;
  if (shown?.id !== race?.id || !run) return take(shown);
  race = shown; // files that came late leave an open form as it is
  draw();
});
emit("ask-races", null, scope);
