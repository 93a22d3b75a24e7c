// Passes new parts of its value on to their panels.
const PANELS = __PANELS__;
const drawn = {};

watch("value", () => {
  const all = Object.entries(props.value || {});
  const parts = Object.fromEntries(all.map(([name, part]) => [PANELS[name], part.value]));
  for (const [name, part] of all) {
    if (drawn[name] === part.number) continue;
    drawn[name] = part.number;
    emit("show", { panel: PANELS[name], value: part.value, parts });
  }
});
