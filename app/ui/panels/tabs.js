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
// Folds stay as the visitor left them, in later visits and when their panel is redrawn, with new folds or with the old ones closed.
const folds = document.getElementsByTagName("details"), states = recall({});
const nameOf = (fold) => `${fold.closest("[data-model]")?.dataset.model ?? fold.closest("[id]").id}: ${fold.firstElementChild.textContent}`;
document.addEventListener("click", ({ target }) => { // before it opens or closes
  const fold = target.closest?.("summary")?.parentElement;
  if (fold) remember(Object.assign(states, { [nameOf(fold)]: !fold.open }));
});
const restore = (fold) => { fold.open = states[nameOf(fold)] ?? fold.open; };
document.addEventListener("toggle", ({ target }) => { if (target.localName === "details") restore(target); }, true);
new MutationObserver(() => [...folds].forEach(restore)).observe(document.body, { childList: true, subtree: true });
[...folds].forEach(restore);
