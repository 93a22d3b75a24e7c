// Starts the panels of a replay file as Gradio starts them on the studio's page. There is no server to answer their events.
const boot = (id, value, run) => run(document.getElementById(id), { value }, () => {}, () => {});

function show(values) {
  for (const [panel, value] of Object.entries(values)) window.dispatchEvent(new CustomEvent("foretoken:show", { detail: { panel, value } }));
  document.documentElement.dataset.shown = "true";
}

{ // follows the system's theme until the button is pressed
  const system = window.matchMedia("(prefers-color-scheme: dark)"), button = document.querySelector(".ft-theme");
  const put = (dark) => {
    document.body.classList.toggle("dark", dark);
    button.textContent = dark ? "Light" : "Dark";
  };
  let chosen = false;
  button.addEventListener("click", () => { chosen = true; put(!document.body.classList.contains("dark")); });
  system.addEventListener("change", () => { if (!chosen) put(system.matches); });
  put(system.matches);
}
