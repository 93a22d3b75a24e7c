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
// Folds that a visitor opened stay open when the cards of models are redrawn.
const opened = new Set(), nameOf = (fold) => `${fold.closest("[data-model]")?.dataset.model} ${fold.firstElementChild.textContent}`;
document.addEventListener("toggle", ({ target }) => target.closest("#models") && opened[target.open ? "add" : "delete"](nameOf(target)), true);
const reopen = () => { for (const fold of document.querySelectorAll("#models details")) fold.open ||= opened.has(nameOf(fold)); };
whenThere("#models", () => new MutationObserver(reopen).observe(document.querySelector("#models"), { childList: true, subtree: true }));
