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
