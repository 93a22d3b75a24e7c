// The page is dark unless the user has chosen light in this browser.
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
put(localStorage.getItem("foretoken-theme") !== "light");

document.addEventListener("keydown", (event) => { // Ctrl+Enter presses Generate on the open tab; in the prompt Gradio does that
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey) || event.target.closest("#prompt")) return;
  const button = [...document.querySelectorAll("button.ft-go.primary")].find((b) => b.offsetParent && !b.disabled);
  if (!button) return;
  event.preventDefault();
  const field = event.target.closest("input, textarea");
  field?.blur(); // a typed number takes effect when its field loses the focus
  button.click();
  field?.focus();
});
