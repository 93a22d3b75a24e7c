// Reopens the last tab after a reload; a link with settings opens its own tab.
const OPEN = "foretoken-tab";
document.addEventListener("click", (event) => {
  const tab = event.target.closest?.("#tabs [role=tab]");
  if (tab) sessionStorage.setItem(OPEN, tab.textContent.trim());
});
document.addEventListener("click", (event) => { // the card of a model links to its tab
  const to = event.target.closest?.("[data-tab]")?.dataset.tab;
  if (to) tabsOf().find((tab) => tab.textContent.trim() === to)?.click();
});
const before = new URLSearchParams(location.search).has("run") ? null : sessionStorage.getItem(OPEN);
if (before) whenThere("#canvas-fast .ft-card[data-side]", () => tabsOf().find((tab) => tab.textContent.trim() === before)?.click());
// Folds stay as the visitor left them, in later visits and when their panel is redrawn.
const folds = document.getElementsByTagName("details"), states = recall({}), met = new WeakSet();
const nameOf = (fold) => `${fold.closest("[data-model]")?.dataset.model ?? fold.closest("[id]").id}: ${fold.firstElementChild.textContent}`;
document.addEventListener("toggle", ({ target }) => { if (met.has(target)) remember(Object.assign(states, { [nameOf(target)]: target.open })); }, true);
function restoreFolds() {
  for (const fold of folds) {
    if (!met.has(fold)) fold.open = states[nameOf(fold)] ?? fold.open;
    met.add(fold);
  }
}
new MutationObserver(restoreFolds).observe(document.body, { childList: true, subtree: true });
restoreFolds();
