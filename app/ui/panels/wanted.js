// Settings for the Mesh tab. They are asked for by an event, or were before this tab was opened for the first time.
const OPENED = "#mesh-examples [aria-pressed=true]"; // the tab's own first values have come

function take(settings) {
  window.foretokenMesh = undefined;
  props.value = settings;
  trigger("input");
}

function waitFor(settings) {
  if (document.querySelector(OPENED)) return take(settings);
  const watcher = new MutationObserver(() => {
    if (!document.querySelector(OPENED)) return;
    watcher.disconnect();
    take(settings);
  });
  watcher.observe(document.body, { subtree: true, childList: true, attributes: true, attributeFilter: ["aria-pressed"] });
}

window.addEventListener("foretoken:restore-mesh", ({ detail }) => waitFor(detail));
if (window.foretokenMesh) waitFor(window.foretokenMesh);
