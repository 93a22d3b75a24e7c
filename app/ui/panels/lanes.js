// Shows a race of chosen runs in place of the last race, with one run per lane, what they have in common, and a replay bar.
const NAMES = __NAMES__, VIEWS = __VIEWS__, LAST = __LAST__;
const COUNT = { 2: "Two", 3: "Three", 4: "Four" };
const SAID = { prompt: (r) => r.prompt, seed: (r) => `seed ${r.seed}`, size: (r) => (r.size && !r.settings.input ? `${r.size} px` : "") };
const head = element.querySelector(".ft-lanes-head"), part = (name) => head.querySelector(name);
const stage = element.closest(".ft-stage"), tab = element.closest("[role=tabpanel]");
let racing = []; // the current lanes: {title, about, value, points, settings}
let opener = null; // the element that had the focus

const give = (panel, value) => emit("show", { panel, value });
const tell = (text) => { part(".ft-lanes-status").textContent = text; };

// Settings common to all runs, and those that differ.
function compare(rows) {
  const words = (r) => Object.values(SAID).map((say) => say(r)), all = rows.map(words);
  const same = all[0].map((word, i) => all.every((each) => each[i] === word));
  const some = (list, kept) => list.filter((word, i) => word && kept(i));
  return { shared: some(all[0], (i) => same[i]), own: rows.map((r, at) => [r.changed, ...some(all[at], (i) => !same[i])].filter(Boolean)) };
}

function open({ lanes, list, play }) {
  const { shared, own } = compare(lanes.map(({ row }) => row));
  racing = lanes.map(({ row, value, points }, i) => ({ title: row.title, about: own[i].join(" · "), value, points, settings: row.settings }));
  opener = stage.dataset.lanes ? opener : document.activeElement;
  stage.dataset.lanes = racing.length;
  stage.style.setProperty("--lanes", racing.length);
  part("h2").textContent = `${COUNT[racing.length]} runs, each on its own clock`;
  part(".ft-lanes-shared").textContent = shared.join(" · ");
  tell("");
  sessionStorage.setItem(LAST, JSON.stringify(list));
  emit("running", true, scope); // the replay bar forgets the previous race
  const shown = racing.map(({ value, title, about }, i) => ({ ...value, side: NAMES[i], title, about }));
  if (VIEWS.length > 1) VIEWS.forEach((view, i) => give(view, shown[i] || { state: "empty", side: NAMES[i], title: "", text: "" }));
  else give(VIEWS[0], { state: "done", sides: Object.fromEntries(shown.map((each, i) => [NAMES[i], each])), points: racing[0].points });
  emit("running", false, scope);
  if (!play) return;
  head.focus({ preventScroll: true });
  head.scrollIntoView({ block: "start" });
  emit("play", null, scope);
}

function close() {
  if (!stage.dataset.lanes) return;
  delete stage.dataset.lanes;
  sessionStorage.removeItem(LAST);
  emit("running", true, scope); // stops the replay
  if (scope.contains(document.activeElement) && opener?.isConnected) opener.focus();
}

function make(kind) {
  tell("Making the file.");
  for (const each of head.querySelectorAll("[data-make]")) each.disabled = true;
  props.value = { make: kind, lanes: racing, number: Date.now() };
  trigger("input");
}

function finish() { // the button has the file, or the page shows the error
  tell("");
  for (const each of head.querySelectorAll("[data-make]")) each.disabled = false;
  const button = document.getElementById(__FILE__), file = button?.querySelector("button, a") || button;
  if (!file?.disabled) file?.click();
}

for (const each of head.querySelectorAll("[data-make]")) each.addEventListener("click", () => make(each.dataset.make));
part("[data-do=close]").addEventListener("click", close);
scope.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  event.stopPropagation();
  close();
});
tab.addEventListener("foretoken:running", ({ detail }) => { if (detail) close(); });
window.addEventListener("foretoken:made", ({ detail }) => { if (detail === __OWN__) finish(); });
watch("value", () => {
  const v = props.value;
  if (v?.lanes && !v.make) open(v);
  else if (!v) close();
});
