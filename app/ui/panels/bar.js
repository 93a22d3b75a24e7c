// The line of controls. Shows the choices sent by other panels ("foretoken:knobs", "foretoken:summary"), and opens the settings.
const bar = element.querySelector(".ft-controls"), sizes = bar.querySelector("[data-part=sizes]");
const button = (name) => bar.querySelector(`[data-do=${name}]`);
const KEPT = "foretoken-settings";
const narrow = window.matchMedia("(max-width: 767px)");

function openSettings(open, kept = true) {
  const main = scope.querySelector(".ft-main");
  if (main) main.dataset.settings = open ? "open" : "closed";
  button("settings").setAttribute("aria-expanded", open);
  if (kept) localStorage.setItem(KEPT, open ? "open" : "closed");
  window.dispatchEvent(new Event("resize")); // charts and canvases adapt their width
}

const isOpen = () => scope.querySelector(".ft-main")?.dataset.settings === "open";

function openWords(open) {
  if (!button("words")) return;
  const inside = document.activeElement?.closest(".ft-words-drawer");
  if (!open && inside) button("words").focus();
  button("words").setAttribute("aria-expanded", Boolean(open));
  bar.dataset.opened = open;
  emit("words", open, scope);
}

function drawSizes({ declarations, values }) {
  const knob = declarations.find((each) => each.name === "size");
  if (!sizes) return;
  sizes.hidden = !knob;
  if (!knob) return;
  if (sizes.childElementCount !== knob.choices.length) {
    sizes.replaceChildren(...knob.choices.map((choice) => {
      const each = node("button", choice, { type: "button", onclick: () => emit("set", { panel: props.value.settings, name: "size", value: choice }) });
      each.dataset.size = choice;
      return each;
    }));
  }
  for (const each of sizes.children) each.setAttribute("aria-pressed", each.dataset.size === values.size);
}

window.addEventListener("foretoken:knobs", ({ detail }) => { if (detail.panel === props.value?.settings) drawSizes(detail); });
scope.addEventListener("foretoken:summary", ({ detail }) => {
  const [title, word, ...rest] = detail.words, mark = node("span", word, { className: "ft-badge" });
  mark.dataset.exact = detail.exact;
  button("settings").replaceChildren(node("b", title), mark, ...rest.map((text) => node("span", text)));
  button("settings").setAttribute("aria-label", `Method and settings: ${detail.words.join(", ")}`);
});
let running = false;
scope.addEventListener("foretoken:running", ({ detail }) => {
  for (const each of sizes?.children ?? []) each.disabled = detail;
  if (detail && !running && narrow.matches) scope.querySelector(".ft-stage")?.scrollIntoView(); // on a phone the results are below the controls
  running = detail;
});
document.addEventListener("click", ({ target }) => { // on a phone, the sheet's button or a tap outside closes it
  const outside = narrow.matches && isOpen() && !target.closest(".ft-settings, .ft-summary") && target.isConnected;
  if (!scope.contains(target)) return;
  if (target.closest(".ft-sheet")) shut();
  else if (outside) openSettings(false);
});
let opens = 0; // a timer: the words open by themselves when the visitor has typed nothing known, and close with the first known word
scope.addEventListener("foretoken:nothing-known", ({ detail }) => {
  clearTimeout(opens);
  const open = button("words")?.getAttribute("aria-expanded") === "true";
  if (detail && !open) opens = setTimeout(() => openWords("quietly"), 900);
  else if (!detail && open && bar.dataset.opened === "quietly") openWords(false);
});
scope.addEventListener("foretoken:close-words", () => openWords(false));
function shut() { // and focuses the button
  openSettings(false);
  button("settings").focus();
}
button("settings").addEventListener("click", () => {
  openSettings(!isOpen());
  if (narrow.matches && isOpen()) scope.querySelector(".ft-sheet")?.focus();
});
scope.addEventListener("keydown", (event) => { // Escape first closes the settings or the words, then cancels a run
  if (event.key !== "Escape" || event.defaultPrevented) return;
  const sheet = narrow.matches && isOpen() && event.target.closest(".ft-settings"), drawer = event.target.closest(".ft-words-drawer");
  if (!sheet && !drawer) return;
  event.preventDefault();
  if (sheet) shut();
  else openWords(false);
});
button("words")?.addEventListener("click", () => openWords(button("words").getAttribute("aria-expanded") !== "true"));
requestAnimationFrame(() => { // after the other panels of the tab
  openSettings(!narrow.matches && localStorage.getItem(KEPT) === "open", false);
  emit("ask-summary");
  emit("ask-knobs");
});
