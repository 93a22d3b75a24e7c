// Settings for this tab. They are asked for by an event, or were before the tab was opened for the first time.
const OPENED = __OPENED__;

function take(settings) {
  window.foretokenWanted = undefined;
  props.value = settings;
  trigger("input");
}

function waitFor({ panel, value }) {
  if (panel === __OWN__) whenThere(OPENED, () => take(value));
}

window.addEventListener("foretoken:want", ({ detail }) => waitFor(detail));
if (window.foretokenWanted) waitFor(window.foretokenWanted);
