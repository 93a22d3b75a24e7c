// Table of runs of one kind. Stores each race with the values of all panels, so that it can be shown and replayed without the server.
const KIND = __KIND__;
const box = element.querySelector(".ft-runs"), body = box.querySelector("tbody"), status = box.querySelector(".ft-runs-status");
const search = box.querySelector("input");
const LAST = KIND.last; // sessionStorage key of the race on display
const changes = (r) => [r.changed, r.moved ? `${r.moved} knob${r.moved === 1 ? "" : "s"} moved` : ""].filter(Boolean).join(", ");
const COLUMNS = [
  ["Run", (r) => r.title], ["Changed", (r) => changes(r) || "–"],
  [KIND.prompt, (r) => r.prompt], ["Seed", (r) => String(r.seed)],
  ["Seconds", (r) => r.seconds.toFixed(2) + (r.quartiles ? ` (${r.quartiles.map((s) => s.toFixed(2)).join("–")})` : "")],
  ["Passes", (r) => String(r.passes)], ["Tokens / pass", (r) => r.compression.toFixed(2)],
  ["Speed-up", (r) => (r.speedup ? `${r.speedup.toFixed(2)}×` : "–")], ["Exact", (r) => (r.exact ? "exact" : "not exact")],
  ["Deviation", (r) => (r.deviation === null ? "–" : r.deviation.toFixed(3))],
  ...KIND.columns.map(([name, entry]) => [name, (r) => String(r[entry] ?? "–")]),
];
const TEXT = new Set(["Run", "Changed", KIND.prompt, "Exact", "Fit"]);
let races = [];
let awaited = null; // tokens of a link whose run is being made again, and its token under the lens
let pointed = null; // token under the lens of the run on display
let picked = []; // runs chosen for a race: [id of the race, number of the row]

const announce = (text) => { status.textContent = text; };
const searchText = (race) => race.rows.map((r) => `${r.title} ${r.changed} ${r.prompt} ${r.seed}`).join(" ").toLowerCase();
const shownRaces = () => races.filter((race) => searchText(race).includes(search.value.trim().toLowerCase()));
const rowsOf = (list) => list.flatMap((race) => race.rows);

function button(label, does, about) {
  const made = node("button", label, { type: "button", onclick: does });
  made.setAttribute("aria-label", about);
  return made;
}

function ask({ linked, tokens, at, ...settings }, side) {
  const number = Date.now();
  awaited = linked && tokens ? { tokens, at } : null;
  // a link opens with its result: the restored form is run
  if (linked) whenThere(KIND.ready.replace(" i", ` b[data-number="${number}"]`), () => requestAnimationFrame(() => document.querySelector(KIND.ready.replace("ready i", "generate")).click()));
  props.value = { ask: { settings, side, number, linked } };
  trigger("input");
}

function restore(settings) { // of a fork: on the run that it goes on from, if that is stored
  const isFork = settings.parent && rowsOf(races).some((r) => r.settings.id === settings.parent);
  return isFork ? emit("restore-fork", settings, scope) : ask(settings, "right");
}

// Shows a stored race: restores the values of all panels.
function show(race) {
  pointed = null;
  for (const [panel, value] of Object.entries(race.parts)) {
    if (panel !== __OWN__) emit("show", { panel, value });
  }
  emit("show", { panel: KIND.lanes, value: null });
  sessionStorage.setItem(LAST, race.id);
  tell();
}

scope.addEventListener("foretoken:run-settings", ({ detail }) => ask({ ...detail, linked: true }, "right"));
const tell = () => emit("races", { races, shown: sessionStorage.getItem(LAST) }, scope);
scope.addEventListener("foretoken:ask-races", tell);
scope.addEventListener("foretoken:show-race", ({ detail }) => show(races.find((race) => race.id === detail)));

// Panel value of a row's run, if it has finished.
function sideOf(race, i) {
  const value = KIND.sides[i]?.reduce((found, name) => found?.[name], race.parts);
  return race.rows[i].finished && value?.course ? value : null;
}

function pick(race, i) {
  const kept = picked.filter(([id, row]) => id !== race.id || row !== i), taken = kept.length < picked.length;
  if (!taken && picked.length === __MOST__) return announce("At most __MOST__ runs can race. Remove one first.");
  picked = taken ? kept : [...picked, [race.id, i]];
  announce(picked.length === 1 ? "Choose one to three more runs to race them." : "");
  showPicked();
}

function showPicked() {
  const keys = new Set(picked.map(String)), begin = box.querySelector("[data-do=race]");
  for (const each of body.querySelectorAll("[data-pick]")) each.setAttribute("aria-pressed", keys.has(each.dataset.pick));
  begin.hidden = picked.length < 2;
  begin.textContent = `Race ${picked.length} runs`;
}

// Races the chosen runs, unless one has been deleted. play: start immediately
function start(list, play) {
  const found = list.map(([id, i]) => [races.find((race) => race.id === id), i]);
  if (found.length < 2 || !found.every(([race, i]) => race?.rows[i] && sideOf(race, i))) return;
  const lanes = found.map(([race, i]) => {
    const { thumbnail, ...row } = race.rows[i];
    return { row, value: sideOf(race, i), points: race.parts[KIND.sides[i][0]].points };
  });
  emit("show", { panel: KIND.lanes, value: { lanes, list, play } });
}

// The address of a run: its settings, its tokens as uint16, and the token under the lens, if the run is on display.
function link(race, i) {
  const { settings } = race.rows[i], { backbone, method, preset, prompt, seed, size, about, sampling, knobs } = settings;
  const input = settings.input && { up: settings.input.up };
  const text = new TextEncoder().encode(JSON.stringify({ backbone, method, preset, prompt, seed, size, about, sampling, knobs, input }));
  const tokens = tokensOf(race, i), parts = { run: urlText(text) };
  if (tokens && Math.max(...tokens) < 65536) parts.tokens = urlText(new Uint8Array(Uint16Array.from(tokens).buffer));
  if (pointed !== null && parts.tokens && race.id === sessionStorage.getItem(LAST)) parts.at = pointed;
  return `${location.origin}${location.pathname}?${new URLSearchParams(parts)}`;
}

function tokensOf(race, i) { // of a row's run, in the order of positions; null if it has none
  const value = sideOf(race, i), text = value?.course.ids ?? value?.tokens;
  return text ? new Int32Array(bytes(text).buffer) : null;
}

// Compares a run that was made again with the tokens of its link, and puts the link's token under the lens.
function openLinked(race) {
  const { tokens, at } = awaited, made = tokensOf(race, 0), differs = tokens.findIndex((token, i) => token !== made?.[i]);
  awaited = null;
  announce(differs < 0 && made?.length === tokens.length ? "This is the run of the link, token for token."
    : `This machine made another run than the link's, from token ${((differs < 0 ? tokens.length : differs) + 1).toLocaleString("en")} on.`);
  if (Number.isInteger(at)) emit("point", at);
}

async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    announce(`${what} copied.`);
  } catch { // no permission, or no secure context
    const area = node("textarea", "", { value: text });
    document.body.append(area);
    area.select();
    announce(document.execCommand("copy") ? `${what} copied.` : `The browser does not allow copying. ${text}`);
    area.remove();
  }
}

function line(race, r, i) {
  const tr = node("tr"), first = node("td"), last = node("td", "", { className: "ft-acts" });
  const picture = new Image(44, 44);
  if (r.thumbnail) picture.src = r.thumbnail;
  picture.alt = "";
  const view = button("", () => { show(race); announce(""); }, `Show and replay this race: ${r.title}, ${r.prompt}`);
  view.className = "ft-thumbnail";
  view.append(picture);
  first.append(view);
  tr.append(first);
  for (const [name, of] of COLUMNS) {
    if (name === "Changed") continue; // shown below the method
    const td = node("td", of(r), { className: TEXT.has(name) ? "text" : "" });
    td.dataset.column = name;
    if (name === "Run" && changes(r)) td.append(node("small", changes(r)));
    if (name === KIND.prompt) td.title = r.prompt;
    if (name === "Exact") td.innerHTML = `<span class="ft-badge" data-exact="${r.exact}">${of(r)}</span>`;
    tr.append(td);
  }
  if (sideOf(race, i)) {
    const chosen = button("Race", () => pick(race, i), `Choose for a race: ${r.title}, ${r.prompt}`);
    chosen.dataset.pick = [race.id, i];
    last.append(chosen);
  }
  last.append(
    button("Restore", () => restore(r.settings), `Restore the settings of ${r.title}`),
    button("Use on the left", () => ask(r.settings, "left"), `Compare with ${r.title} on the left`),
    button("Link", () => copy(link(race, i), "Link"), `Copy a link to this run: ${r.title}`),
    button("×", () => forget([race]), `Delete this race: ${r.title}, ${r.prompt}`),
  );
  tr.append(last);
  return tr;
}

function table() {
  box.hidden = !races.length;
  const head = node("tr");
  for (const name of ["", ...COLUMNS.map(([name]) => name).filter((name) => name !== "Changed"), ""]) {
    const th = node("th", name, { scope: "col", className: TEXT.has(name) ? "text" : "" });
    th.dataset.column = name;
    head.append(th);
  }
  box.querySelector("thead").replaceChildren(head);
  const found = shownRaces();
  body.replaceChildren(...found.flatMap((race) => race.rows.map((r, i) => line(race, r, i))));
  box.dataset.rows = body.childElementCount;
  picked = picked.filter(([id]) => races.some((race) => race.id === id));
  showPicked();
}

async function forget(gone) {
  if (gone.some((race) => race.id === sessionStorage.getItem(LAST))) sessionStorage.removeItem(LAST);
  await dropRaces(gone.map((race) => race.id));
  await load();
}

async function load() {
  races = await allRaces(KIND.name);
  table();
  tell();
}

function values() {
  return rowsOf(shownRaces()).map((r) => COLUMNS.map(([, of]) => of(r)));
}

const acts = {
  race: () => start(picked, true),
  csv: () => copy([COLUMNS.map(([name]) => name), ...values()].map(csvLine).join("\n"), "CSV"),
  markdown: () => copy([COLUMNS.map(([name]) => name), COLUMNS.map(() => "---"), ...values()]
    .map((r) => `| ${r.map((text) => text.replaceAll("|", "\\|")).join(" | ")} |`).join("\n"), "Markdown"),
  export: () => {
    const blob = new Blob([JSON.stringify(rowsOf(shownRaces()).map(({ thumbnail, ...rest }) => rest), null, 1)], { type: "application/json" });
    save(blob, `foretoken-${KIND.name}-runs.json`);
  },
  clear: async () => {
    const gone = shownRaces();
    if (!confirm(`Delete ${gone.length} race${gone.length === 1 ? "" : "s"} from this browser?`)) return;
    await forget(gone);
  },
};
for (const each of box.querySelectorAll("header [data-do]")) each.addEventListener("click", acts[each.dataset.do]);
search.addEventListener("input", table);

search.placeholder = KIND.search;

window.addEventListener("foretoken:show", async ({ detail }) => {
  if (detail.panel !== __OWN__ || !detail.parts) return;
  const race = { ...detail.value, parts: detail.parts };
  sessionStorage.setItem(LAST, race.id);
  try {
    await keepRace(race);
  } catch (wrong) {
    announce(`The browser cannot store more runs (${wrong?.name}). Delete some.`);
  }
  await load();
  pointed = null;
  if (awaited) openLinked(race);
});
window.addEventListener("foretoken:point", ({ detail }) => { if (element.offsetParent) pointed = detail ?? pointed; });

// Other surfaces of a mesh, which are made after the race.
watch("value", async () => {
  const { race: id, surfaces } = props.value || {}, race = id && races.find((each) => each.id === id);
  if (!race) return;
  if (surfaces) {
    const side = KIND.sides[0].reduce((found, name) => found[name], race.parts);
    side.surfaces = surfaces;
    emit("surfaces", side, scope);
  }
  await keepRace(race);
  await load();
});

// Restores settings dropped on the page or in its address, once the tab is ready.
function takeAsked() {
  const settings = takeSettings(KIND.name);
  if (settings) whenThere(KIND.ready, () => ask(settings, "right"));
}
window.addEventListener("foretoken:asked", takeAsked);

(async () => {
  takeAsked();
  const linked = takeLink();
  await load();
  if (linked) return;
  const lanes = JSON.parse(sessionStorage.getItem(`${LAST}-lanes`) || "[]");
  const last = races.find((race) => race.id === sessionStorage.getItem(LAST)); // shown in this window before a reload
  if (last) show(last);
  start(lanes, false);
})();
