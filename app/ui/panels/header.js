// Follows the system's theme until the user has chosen one in this browser.
const system = window.matchMedia("(prefers-color-scheme: dark)");
const button = element.querySelector(".ft-theme");
element.querySelector(".ft-loaded").textContent = props.value.loaded;

function put(dark) {
  document.body.classList.toggle("dark", dark);
  document.documentElement.style.background = "";
  button.textContent = dark ? "Light" : "Dark";
}

button.addEventListener("click", () => {
  const dark = !document.body.classList.contains("dark");
  localStorage.setItem("foretoken-theme", dark ? "dark" : "light");
  put(dark);
});
const follow = () => put(localStorage.getItem("foretoken-theme") ? localStorage.getItem("foretoken-theme") === "dark" : system.matches);
system.addEventListener("change", follow);
follow();

document.addEventListener("keydown", (event) => { // Ctrl+Enter presses Generate on the open tab; in the prompt, Gradio handles it
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey) || event.target.closest("#prompt")) return;
  const button = [...document.querySelectorAll("button.ft-go.primary")].find((b) => b.offsetParent && !b.disabled);
  if (!button) return;
  event.preventDefault();
  const field = event.target.closest("input, textarea");
  field?.blur(); // a number takes effect when its field loses focus
  button.click();
  field?.focus();
});

// Escape cancels the run of the open tab. The focus follows when Generate and Cancel replace each other.
const seen = (selector) => [...document.querySelectorAll(selector)].find((b) => b.offsetParent && !b.disabled);
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !event.defaultPrevented && !document.querySelector("dialog[open]")) seen("button.ft-go.stop")?.click();
});
let pressed = false; // whether one of the two buttons had the focus
document.addEventListener("focusin", (event) => { pressed = event.target.matches?.("button.ft-go") ?? false; });
new MutationObserver(() => {
  if (pressed && (document.activeElement === document.body || !document.activeElement?.offsetParent)) seen("button.ft-go")?.focus();
}).observe(document.body, { subtree: true, childList: true, attributes: true, attributeFilter: ["class"] });

// Gradio says in a toast that it has lost the server, on top of Generate. Our own line replaces it, and the boards stop.
const lost = element.querySelector(".ft-lost");
setInterval(() => {
  const toast = [...document.querySelectorAll(".toast-wrap")].find((each) => each.textContent.includes("Connection to the server was lost"));
  if (toast) toast.hidden = true;
  if (Boolean(toast) === !lost.hidden) return;
  lost.hidden = !toast;
  if (toast) emit("lost");
}, 500);
