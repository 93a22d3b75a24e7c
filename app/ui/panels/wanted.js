// Settings for this tab. They are asked for by an event, or were before the tab was opened for the first time.
const OPENED = __OPENED__;

function take(settings) {
  window.foretokenWanted = undefined;
  props.value = settings;
  trigger("input");
}

function waitFor({ panel, value }) {
  if (panel !== __OWN__) return;
  if (!OPENED || document.querySelector(OPENED)) return take(value);
  const watcher = new MutationObserver(() => {
    if (!document.querySelector(OPENED)) return;
    watcher.disconnect();
    take(value);
  });
  watcher.observe(document.body, { subtree: true, childList: true, attributes: true });
}

window.addEventListener("foretoken:want", ({ detail }) => waitFor(detail));
if (window.foretokenWanted) waitFor(window.foretokenWanted);
