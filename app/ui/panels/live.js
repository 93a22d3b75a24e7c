// Hands the parts of its value on to the panels whose parts are new.
const PANELS = __PANELS__;
const drawn = {};

watch("value", () => {
  for (const [name, part] of Object.entries(props.value || {})) {
    if (drawn[name] === part.number) continue;
    drawn[name] = part.number;
    window.dispatchEvent(new CustomEvent("foretoken:show", { detail: { panel: PANELS[name], value: part.value } }));
  }
});
